"""The weights of a model: what each module holds, the type that they are computed in, and the memory that they take."""

from __future__ import annotations

from collections import Counter
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm.models.switch_layers import QuantizedSwitchLinear, SwitchLinear
from mlx_lm.utils import dequantize_model

from engine.errors import LoadError
from engine.memory import MemoryOf, memory_available, memory_installed
from engine.settings import LoadSettings

SCALING = ("scales", "biases", "global_scale")
"""Arrays that belong to a packed weight and are no parameters of their own."""
SWITCHED = (SwitchLinear, QuantizedSwitchLinear)
"""The matrices of all experts of a mixture in one array."""


def own_arrays(module: Any) -> dict[str, mx.array]:
    """The weights that a module holds itself, in lists too, not those of the modules in it.

    Returns:
        By attribute; mlx.nn counts no attribute that begins with `_`.
    """
    own = {key: value for key, value in module.items() if not key.startswith("_")}
    leaves = cast(list[tuple[str, Any]], tree_flatten(own, is_leaf=lambda each: isinstance(each, nn.Module)))
    return {name: leaf for name, leaf in leaves if isinstance(leaf, mx.array)}


def arrays_of(model: Any) -> list[tuple[str, mx.array]]:
    """The weights of a model by name."""
    return cast(list[tuple[str, mx.array]], tree_flatten(model.parameters()))


def is_packed(module: Any) -> bool:
    """True if each number of a module's `weight` holds several quantized ones."""
    return hasattr(module, "bits") and "scales" in module and "weight" in module


def own_parameters(module: Any) -> int:
    """Number of parameters that a module holds itself; of a packed weight, that of its unpacked numbers."""
    own = own_arrays(module)
    if not is_packed(module):
        return sum(array.size for array in own.values())
    others = sum(array.size for name, array in own.items() if name not in (*SCALING, "weight"))
    return int(own["weight"].size * 32 // module.bits) + others


def parameters_of(model: Any) -> int:
    """Number of parameters of a model, each array once.

    mlx_lm's `get_total_parameters` leaves out arrays of modules that hold other modules, as recurrent mixers do.
    """
    return sum(own_parameters(module) for module in _modules(model))


def bytes_of(model: Any) -> int:
    """Bytes of a model's weights, each array once."""
    return sum(array.nbytes for module in _modules(model) for array in own_arrays(module).values())


def experts_of(model: Any) -> int:
    """Number of experts of a model's largest mixture, in one array or as modules of their own; 0 without a mixture."""
    counts = [
        int(each.num_experts) if isinstance(each, SWITCHED) else len(each.get("experts") or ())
        for each in _modules(model)
    ]
    return max(counts, default=0)


def _modules(model: Any) -> list[Any]:
    return list({id(module): module for _, module in model.named_modules()}.values())


# ---- types -------------------------------------------------------------------------------------

MEMORY_SHARE = 0.5
"""Share of the free memory that weights may take in a larger type without a request."""
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}
_UNPACKED = (nn.QuantizedLinear, nn.QuantizedEmbedding, QuantizedSwitchLinear)
"""The layers that mlx_lm dequantizes."""


def dtype_of(model: Any) -> str:
    """The type of most of the weights' floating-point numbers; the packed ones of quantized weights don't count."""
    sizes = Counter[str]()
    for array in _floating(model):
        sizes[str(array.dtype).removeprefix("mlx.core.")] += array.size
    return max(sizes, key=sizes.__getitem__, default="float32")


def quantization_of(model: Any) -> str | None:
    """The quantization of most of the packed weights, as their arrays say; None if none are packed."""
    sizes = Counter[str]()
    for _, module in model.named_modules():
        if "scales" in module and hasattr(module, "bits"):
            mode = getattr(module, "mode", "affine")
            sizes[f"{module.bits}-bit, group {module.group_size}, {mode}"] += module.weight.size
    return max(sizes, key=sizes.__getitem__, default=None)


def weights_in(model: Any) -> str:
    """The form of most of the weights: their quantization, else their type."""
    return quantization_of(model) or dtype_of(model)


def set_dtype(model: Any, wanted: str, fast_blas: bool) -> tuple[str, ...]:
    """Let a model compute in another type than its file's, before its weights are evaluated.

    Args:
        model: Its weights are lazy.
        wanted: One of `engine.settings.DTYPES`; `auto` is float32 if `fast_blas`, with quantized weights unpacked,
            as far as memory allows it.
        fast_blas: True if a fast BLAS multiplies float32 matrices.

    Returns:
        Sentences on what was done, or could not be.

    Raises:
        LoadError: Its quantized weights can't be unpacked.
    """
    own = dtype_of(model)
    if wanted == "dequantized":
        return _dequantize(model)
    if wanted == "file" or (wanted == "auto" and not fast_blas):
        return ()
    if wanted == "auto" and (packed := quantization_of(model)) is not None:
        return _unpack_where_it_fits(model, packed)
    computed = "float32" if wanted == "auto" else wanted
    needed = sum(array.nbytes for array in _floating(model)) * _BYTES[computed] // _BYTES[own]
    if wanted == "auto" and computed != own and (free := _short_of(needed)):
        return (
            f"Computed in {own}: {computed} would be faster, but its weights would take more than half of the "
            f"{free / 2**30:.1f} GiB that are free. --dtype {computed} asks for it all the same.",
        )
    if computed != own:
        model.set_dtype(getattr(mx, computed))
    return ()


def quantize(model: Any, bits: int, group_size: int) -> None:
    """Quantize plain weights in place, the layers that mlx_lm.convert quantizes, before they are evaluated.

    Args:
        model: Its weights are lazy.
        bits: Bits of a weight.
        group_size: Weights that share a scale.

    Raises:
        LoadError: None of its layers can be quantized so.
    """
    chosen = getattr(model, "quant_predicate", None) or (lambda path, module: True)

    def predicate(path: str, module: Any) -> Any:
        divides = hasattr(module, "to_quantized") and module.weight.shape[-1] % group_size == 0
        return divides and chosen(path, module)

    nn.quantize(model, group_size, bits, class_predicate=predicate)
    if quantization_of(model) is None:
        raise LoadError(
            f"No layer of this model can be divided into groups of {group_size}.", "Use smaller groups."
        )


def _dequantize(model: Any) -> tuple[str, ...]:
    """Unpack quantized weights into float32, in place: the same weights, multiplied as plain ones."""
    if quantization_of(model) is None:
        return ("This model's weights are not quantized: --dtype dequantized changed nothing.",)
    if any(module.get("global_scale") is not None for module in _modules(model)):
        raise LoadError(
            "mlx_lm can't dequantize nvfp4 weights that have a scale for a whole tensor.",
            "Leave --dtype out: they run as they are.",
        )
    model.set_dtype(mx.float32)  # the scales: else the products with them are rounded to the file's type
    try:
        dequantize_model(model)
        # MLX unpacks mxfp4, mxfp8 and nvfp4 to bfloat16, which holds their numbers exactly
        model.set_dtype(mx.float32)
    except (AttributeError, TypeError, ValueError) as error:
        raise LoadError(
            f"mlx_lm can't dequantize these weights ({error}).", "Leave --dtype out: they run as they are."
        ) from error
    if (left := quantization_of(model)) is not None:
        return (f"Some layers can't be dequantized and stay {left}.",)
    return ()


def _unpack_where_it_fits(model: Any, packed: str) -> tuple[str, ...]:
    """Unpack quantized weights if all are of kinds that can be, and memory allows it; else they stay packed."""
    packed_modules = [module for module in _modules(model) if is_packed(module)]
    if not all(isinstance(each, _UNPACKED) and each.get("global_scale") is None for each in packed_modules):
        return ()
    before, needed = bytes_of(model), _BYTES["float32"] * parameters_of(model)
    if free := _short_of(needed):
        return (
            f"Computed as they are, in {packed}: unpacked to float32 the weights would be multiplied several times "
            f"faster, but would take more than half of the {free / 2**30:.1f} GiB that are free. --dtype dequantized "
            "asks for it all the same.",
        )
    _dequantize(model)
    return (
        f"The weights, {packed} in the files, are unpacked to float32: several times faster on the CPU, and "
        f"{_size(needed)} in place of {_size(before)}. --dtype file keeps them packed.",
    )


def unpacks(parameters: int) -> bool:
    """True if `auto` unpacks so many quantized weights, on a CPU with a fast BLAS and the memory that is free now."""
    return not _short_of(_BYTES["float32"] * parameters)


def _short_of(needed: int) -> int:
    """The free bytes if so many may not be taken without a request; 0 if they may."""
    free = memory_available()
    return free if free is not None and needed > MEMORY_SHARE * free else 0


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.1f} MiB"


def _floating(model: Any) -> list[mx.array]:
    return [array for _, array in arrays_of(model) if mx.issubdtype(array.dtype, mx.floating)]


# ---- quantized weights with float32 scales -----------------------------------------------------


def float32_scales(settings: LoadSettings) -> bool:
    """True if a quantized model is computed with float32 scales under these settings."""
    wanted = settings.float32_scales
    if wanted is None:
        wanted = mx.default_device() == mx.Device(mx.cpu)
    return wanted and settings.dtype in ("auto", "file")


def unpacked_by_itself(settings: LoadSettings) -> bool:
    """True if quantized weights may be unpacked without a request: not if the settings name float32 scales."""
    return settings.dtype == "auto" and settings.float32_scales is None


def set_float32_scales(model: Any, settings: LoadSettings) -> tuple[str, ...]:
    """Compute a quantized model in float32 if the settings say so or, on the CPU backend, don't forbid it.

    Returns:
        Sentences that say so.
    """
    if quantization_of(model) is None or not float32_scales(settings):
        return ()
    scales = [array for name, array in arrays_of(model) if name.endswith(".scales")]
    what = (
        "Quantized weights are computed with float32 scales (7 to 40 times faster on the CPU backend);"
        if any(mx.issubdtype(array.dtype, mx.floating) for array in scales)
        else "All but the quantized weights, whose scales are bytes, is computed in float32 (3 to 5 times faster on "
        "the CPU backend);"
    )
    model.set_dtype(mx.float32)
    return (f"{what} the KV cache is float32 then, too.",)


# ---- memory ------------------------------------------------------------------------------------

NEAR = 0.9
"""Share of the free memory that weights may take without a warning: mlx_lm's bound on Metal."""


def memory_of_device() -> MemoryOf:
    """The memory that arrays take on MLX's device."""
    device = mx.device_info()
    if isinstance(device.get("free_memory"), int):
        return "gpu"
    return "metal" if device.get("max_recommended_working_set_size") else "machine"


def free_bytes() -> int | None:
    """Bytes that new arrays may take on MLX's device; None if neither the framework nor the system says.

    On CUDA what is free on the GPU. On Metal, which shares the machine's memory, what is left of what it recommends to
    wire, and no more than what the system has free. On a CPU what the system has free.
    """
    device, used = mx.device_info(), mx.get_active_memory()
    if isinstance(on_gpu := device.get("free_memory"), int):
        return on_gpu
    free = memory_available()
    if free is None and (installed := memory_installed()) is not None:
        free = max(0, installed - used)
    if isinstance(limit := device.get("max_recommended_working_set_size"), int) and limit:
        left = max(0, limit - used)
        return left if free is None else min(left, free)
    return free


def warning_of(needed: int) -> str:
    """A sentence on why weights that are about to be read would be slow to compute with; empty if they fit.

    Args:
        needed: Their bytes in memory.
    """
    free = free_bytes()
    if free is None or needed <= NEAR * free:
        return ""
    where, then = _SCARCE[memory_of_device()]
    return (
        f"The weights take {needed / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB {where} are free: with the KV cache "
        f"{then}. Open a smaller model, or one of fewer bits."
    )


_SCARCE: dict[MemoryOf, tuple[str, str]] = {
    "machine": ("of the machine's memory", "the machine will swap, and a step may take minutes"),
    "metal": ("of what Metal recommends to take", "macOS will swap, and a step may take minutes"),
    "gpu": ("of the GPU's memory", "loading, or a later step, will end for want of it"),
}
"""Names of the memory, and the consequences of too little."""
