"""The floating-point type that a model computes in: its file's, or another one that was asked for."""

from __future__ import annotations

from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm.utils import dequantize_model

from engine.errors import LoadError
from engine.memory import memory_available

MEMORY_SHARE = 0.5
"""Of the memory that is free, what the weights may take in a larger type without being asked for."""
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}


def dtype_of(model: Any) -> str:
    """The type of most of the weights' floating-point numbers; the packed ones of quantized weights don't count."""
    sizes: dict[str, int] = {}
    for array in _floating(model):
        name = str(array.dtype).removeprefix("mlx.core.")
        sizes[name] = sizes.get(name, 0) + array.size
    return max(sizes, key=lambda name: sizes[name], default="float32")


def quantization_of(model: Any) -> str | None:
    """How most of the packed weights are quantized, as their arrays say; None where none are."""
    sizes: dict[str, int] = {}
    for _, module in model.named_modules():
        if "scales" in module and hasattr(module, "bits"):
            name = f"{module.bits}-bit, group {module.group_size}, {getattr(module, 'mode', 'affine')}"
            sizes[name] = sizes.get(name, 0) + module.weight.size
    return max(sizes, key=lambda name: sizes[name], default=None)


def weights_in(model: Any) -> str:
    """The form of most of the weights: their quantization, else their type."""
    return quantization_of(model) or dtype_of(model)


def set_dtype(model: Any, wanted: str, fast_blas: bool) -> tuple[str, ...]:
    """Have a model compute in another type than its file's; before its weights are evaluated.

    Args:
        model: Its weights are lazy.
        wanted: One of `engine.settings.DTYPES`; `auto` is float32 where `fast_blas`, as far as memory allows it.
        fast_blas: Whether a fast BLAS multiplies float32 matrices.

    Returns:
        What to know of it, as sentences.

    Raises:
        LoadError: Its quantized weights can't be unpacked.
    """
    own = dtype_of(model)
    if wanted == "dequantized":
        return _dequantize(model)
    if wanted == "file" or (wanted == "auto" and (not fast_blas or quantization_of(model))):
        return ()  # of quantized weights only the scales have that type, and another setting is about them
    computed = "float32" if wanted == "auto" else wanted
    if computed == own:
        return ()
    if wanted == "auto" and (refused := _too_large(model, own, computed)):
        return (refused,)
    model.set_dtype(getattr(mx, computed))
    return ()


def quantize(model: Any, bits: int, group_size: int) -> None:
    """Quantize plain weights in place, the layers that mlx_lm.convert quantizes, before they are evaluated.

    Args:
        model: Its weights are lazy.
        bits: Of a weight.
        group_size: Weights that share a scale.

    Raises:
        LoadError: None of its layers can be quantized so.
    """
    chosen = getattr(model, "quant_predicate", None) or (lambda path, module: True)

    def takes(path: str, module: Any) -> Any:
        fits = hasattr(module, "to_quantized") and module.weight.shape[-1] % group_size == 0
        return chosen(path, module) if fits else False

    nn.quantize(model, group_size, bits, class_predicate=takes)
    if quantization_of(model) is None:
        raise LoadError(
            f"No layer of this model has rows that groups of {group_size} divide.", "Use smaller groups."
        )


def _dequantize(model: Any) -> tuple[str, ...]:
    """Unpack quantized weights into float32, in place: the same weights, multiplied as plain ones."""
    if quantization_of(model) is None:
        return ("This model's weights are not quantized: --dtype dequantized changed nothing.",)
    model.set_dtype(mx.float32)  # the scales: else the products with them are rounded to the file's type
    try:
        dequantize_model(model)
    except (AttributeError, TypeError, ValueError) as error:
        raise LoadError(
            f"mlx_lm can't dequantize these weights ({error}).", "Leave --dtype out: they run as they are."
        ) from error
    if (left := quantization_of(model)) is not None:
        return (f"Some layers can't be dequantized and stay {left}.",)
    return ()


def _too_large(model: Any, own: str, computed: str) -> str:
    """Why a larger type is not taken without being asked for, empty where it may be."""
    free = memory_available()
    needed = sum(array.nbytes for array in _floating(model)) * _BYTES[computed] / _BYTES[own]
    if free is None or needed <= MEMORY_SHARE * free:
        return ""
    return (
        f"Computed in {own}: {computed} would be faster, but its weights would take more than half of the "
        f"{free / 2**30:.1f} GiB that are free. --dtype {computed} asks for it all the same."
    )


def _floating(model: Any) -> list[mx.array]:
    named = cast(list[tuple[str, mx.array]], tree_flatten(model.parameters()))
    return [array for _, array in named if mx.issubdtype(array.dtype, mx.floating)]
