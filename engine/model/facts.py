"""Facts about a model: modules and arrays, support of its caches, special tokens, fingerprint; and its weights: their
type, the type to compute in, and the memory that they take."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm.models.switch_layers import QuantizedSwitchLinear, SwitchLinear
from mlx_lm.utils import dequantize_model
from msgspec.structs import replace

from engine.cache.kinds import group_size_problem, kind_of
from engine.cache.live import KV
from engine.errors import EngineError, LoadError, SettingsError
from engine.files import CONFIG_LIMIT, open_regular, read_regular, typed
from engine.memory import MemoryOf, memory_available, memory_installed
from engine.model.directory import WINDOWS, read_object
from engine.model.forward import Compute, MakeKV
from engine.model.layers import Tail
from engine.model.tokens import Tokens
from engine.protocol import ModelFacts, SpecialToken
from engine.settings import BY_NAME, LoadSettings

SCALING = ("scales", "biases", "global_scale")
"""Arrays that belong to a packed weight and don't count as parameters."""
SWITCHED = (SwitchLinear, QuantizedSwitchLinear)
"""Layers with the matrices of all experts of a mixture in one array."""


def own_arrays(module: Any) -> dict[str, mx.array]:
    """The weights of a module itself, without its submodules.

    Returns:
        The arrays by attribute, including arrays in lists. Attributes that begin with `_` are ignored, as in mlx.nn.
    """
    own = {key: value for key, value in module.items() if not key.startswith("_")}
    leaves = cast(list[tuple[str, Any]], tree_flatten(own, is_leaf=lambda each: isinstance(each, nn.Module)))
    return {name: leaf for name, leaf in leaves if isinstance(leaf, mx.array)}


def arrays_of(model: Any) -> list[tuple[str, mx.array]]:
    """The weights of a model by name."""
    return cast(list[tuple[str, mx.array]], tree_flatten(model.parameters()))


def is_packed(module: Any) -> bool:
    """True if each element of a module's `weight` packs several quantized numbers."""
    return hasattr(module, "bits") and "scales" in module and "weight" in module


def own_parameters(module: Any) -> int:
    """Number of parameters of a module, without its submodules; for a packed weight, of the unpacked numbers."""
    own = own_arrays(module)
    if not is_packed(module):
        return sum(array.size for array in own.values())
    others = sum(array.size for name, array in own.items() if name not in (*SCALING, "weight"))
    return int(own["weight"].size * 32 // module.bits) + others


def parameters_of(model: Any) -> int:
    """Number of parameters of a model, counting each array once.

    mlx_lm's `get_total_parameters` leaves out the arrays of modules with submodules, such as recurrent mixers.
    """
    return sum(own_parameters(module) for module in _modules(model))


def bytes_of(model: Any) -> int:
    """Bytes of a model's weights, counting each array once."""
    return sum(array.nbytes for module in _modules(model) for array in own_arrays(module).values())


def experts_of(model: Any) -> int:
    """Number of experts of a model's largest mixture, in one array or as separate modules; 0 without a mixture."""
    counts = [
        int(each.num_experts) if isinstance(each, SWITCHED) else len(each.get("experts") or ())
        for each in _modules(model)
    ]
    return max(counts, default=0)


def _modules(model: Any) -> list[Any]:
    return list({id(module): module for _, module in model.named_modules()}.values())


# ---- types -------------------------------------------------------------------------------------

MEMORY_SHARE = 0.5
"""Share of the free memory that weights in a larger type may take unless the user asks for that type."""
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}
_UNPACKED = (nn.QuantizedLinear, nn.QuantizedEmbedding, QuantizedSwitchLinear)
"""The layers that mlx_lm dequantizes."""


def dtype_of(model: Any) -> str:
    """Type of most floating-point numbers of the weights; packed numbers don't count."""
    sizes = Counter[str]()
    for array in _floating(model):
        sizes[str(array.dtype).removeprefix("mlx.core.")] += array.size
    return max(sizes, key=sizes.__getitem__, default="float32")


def quantization_of(model: Any) -> str | None:
    """Quantization of most of the packed weights, from their arrays; None if none are packed."""
    sizes = Counter[str]()
    for _, module in model.named_modules():
        if "scales" in module and hasattr(module, "bits"):
            mode = getattr(module, "mode", "affine")
            sizes[f"{module.bits}-bit, group {module.group_size}, {mode}"] += module.weight.size
    return max(sizes, key=sizes.__getitem__, default=None)


def weights_in(model: Any) -> str:
    """Quantization of most of the weights, or their type if they are not quantized."""
    return quantization_of(model) or dtype_of(model)


def set_dtype(model: Any, wanted: str, fast_blas: bool) -> tuple[str, ...]:
    """Set the type that a model computes in, before its weights are evaluated.

    Args:
        model: A model with lazy weights.
        wanted: One of `engine.settings.DTYPES`; `auto` is float32 with `fast_blas`, with quantized weights unpacked, if
            there is enough memory.
        fast_blas: True if a fast BLAS multiplies float32 matrices.

    Returns:
        Sentences on changes that were made or were not possible.

    Raises:
        LoadError: The quantized weights can't be unpacked.
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
    """Quantize plain weights in place before they are evaluated, in the same layers as mlx_lm.convert.

    Args:
        model: A model with lazy weights.
        bits: Number of bits of a weight.
        group_size: Number of weights that share a scale.

    Raises:
        LoadError: No layer can be quantized in this way.
    """
    chosen = getattr(model, "quant_predicate", None) or (lambda path, module: True)

    def predicate(path: str, module: Any) -> Any:
        divides = hasattr(module, "to_quantized") and module.weight.shape[-1] % group_size == 0
        return divides and chosen(path, module)

    nn.quantize(model, group_size, bits, class_predicate=predicate)
    if quantization_of(model) is None:
        message = f"No layer of this model can be divided into groups of {group_size}."
        raise LoadError(message, "Use smaller groups.")


def _dequantize(model: Any) -> tuple[str, ...]:
    """Unpack quantized weights into float32, in place; their values don't change."""
    if quantization_of(model) is None:
        return ("This model's weights are not quantized: --dtype dequantized changed nothing.",)
    if any(module.get("global_scale") is not None for module in _modules(model)):
        message = "mlx_lm can't dequantize nvfp4 weights that have a scale for a whole tensor."
        raise LoadError(message, "Leave --dtype out: they run as they are.")
    model.set_dtype(mx.float32)  # the scales: products with them would be rounded
    try:
        dequantize_model(model)
        # MLX unpacks mxfp4, mxfp8 and nvfp4 to bfloat16, which represents their numbers exactly
        model.set_dtype(mx.float32)
    except (AttributeError, TypeError, ValueError) as error:
        message = f"mlx_lm can't dequantize these weights ({error})."
        raise LoadError(message, "Leave --dtype out: they run as they are.") from error
    if (left := quantization_of(model)) is not None:
        return (f"Some layers can't be dequantized and stay {left}.",)
    return ()


def _unpack_where_it_fits(model: Any, packed: str) -> tuple[str, ...]:
    """Unpack quantized weights if all can be unpacked and there is enough memory; otherwise they stay packed."""
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
    """True if `auto` unpacks this number of quantized weights, on a CPU with a fast BLAS and the memory now free."""
    return not _short_of(_BYTES["float32"] * parameters)


def _short_of(needed: int) -> int:
    """The free bytes if `needed` bytes exceed the allowed share of them; 0 if they don't."""
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
    """True if the settings leave it to the program whether to unpack quantized weights."""
    return settings.dtype == "auto" and settings.float32_scales is None


def set_float32_scales(model: Any, settings: LoadSettings) -> tuple[str, ...]:
    """Compute a quantized model in float32 if the settings ask for it, or by default on the CPU backend.

    Returns:
        A sentence about that, if it was done.
    """
    if quantization_of(model) is None or not float32_scales(settings):
        return ()
    scales = [array for name, array in arrays_of(model) if name.endswith(".scales")]
    what = (
        "Quantized weights use float32 scales (7 to 40 times faster on a CPU),"
        if any(mx.issubdtype(array.dtype, mx.floating) for array in scales)
        else "All but the quantized weights, whose scales are bytes, is computed in float32 (3 to 5 times faster on a "
        "CPU),"
    )
    model.set_dtype(mx.float32)
    return (f"{what} so the KV cache is float32, too.",)


# ---- memory ------------------------------------------------------------------------------------

NEAR = 0.9
"""Share of the free memory that weights may take without a warning: mlx_lm's limit on Metal."""


def memory_of_device() -> MemoryOf:
    """The kind of memory that arrays use on MLX's device."""
    device = mx.device_info()
    if isinstance(device.get("free_memory"), int):
        return "gpu"
    return "metal" if device.get("max_recommended_working_set_size") else "machine"


def free_bytes() -> int | None:
    """Bytes that new arrays may take on MLX's device; None if neither MLX nor the system reports them.

    With CUDA, the free memory of the GPU. With Metal, which shares the machine's memory, the rest of the recommended
    working set, up to the system's free memory. On a CPU, the system's free memory.
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
    """A sentence that weights that are about to be read leave too little memory, and what follows; empty if they fit.

    Args:
        needed: Bytes of the weights in memory.
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
"""Name of each kind of memory, and the consequence of too little."""


# ---- facts -------------------------------------------------------------------------------------

LEARNED_POSITIONS = ("wpe", "embed_positions", "position_embeddings", "position_embedding")


def facts_of(model: Any, config: dict[str, Any], path: Path) -> ModelFacts:
    """Collect the facts about a model, possibly with lazy weights, before it is divided over several processes.

    Args:
        model: The model as loaded by mlx_lm.
        config: Content of its `config.json`.
        path: Its directory.
    """
    hidden = first_of(config, "hidden_size", "n_embd", "d_model")
    heads = first_of(config, "num_attention_heads", "n_head")
    window = first_of(config, *WINDOWS)
    names = [name.split(".")[-1] for name, _ in model.named_modules()]
    snapshot = path.parent.name == "snapshots" and path.parent.parent.name.startswith("models--")
    try:
        layers = len(model.layers)
    except (AttributeError, TypeError):
        layers = int(first_of(config, "num_hidden_layers", "n_layer", "n_layers") or 0)
    return ModelFacts(
        name=path.parent.parent.name.removeprefix("models--").replace("--", "/") if snapshot else path.name,
        path=str(path),
        family=str(config.get("model_type")),
        layers=layers,
        heads=heads,
        kv_heads=first_of(config, "num_key_value_heads") or heads,
        head_size=first_of(config, "head_dim") or (hidden // heads if hidden and heads else None),
        hidden_size=hidden,
        vocabulary=_embedding_rows(model, config),
        parameters=parameters_of(model),
        weight_bytes=bytes_of(model),
        dtype=dtype_of(model),
        quantization=quantization_of(model),
        context_window=None if window is None else int(window),
        hard_window=any(name in LEARNED_POSITIONS for name in names),
        cache_kinds=(),
        kv_bytes_per_token=None,
        eos_ids=(),
        has_chat_template=False,
        backend="cpu" if mx.default_device() == mx.Device(mx.cpu) else "gpu",
        load_ms=0.0,
        memory_of=memory_of_device(),
        experts=experts_of(model),
    )


def _embedding_rows(model: Any, config: dict[str, Any]) -> int:
    """Number of ids that the model accepts; a larger id would end the process.

    If there are several tables, such as for n-grams, this is the one of the vocabulary's size.
    """
    vocabulary = int(first_of(config, "vocab_size") or 0)
    tables = (nn.Embedding, nn.QuantizedEmbedding)
    found = ((name.split(".")[-1], each) for name, each in model.named_modules() if isinstance(each, tables))
    rows = [int(each.weight.shape[0]) for name, each in found if name not in LEARNED_POSITIONS]
    return vocabulary if vocabulary in rows or not rows else max(rows)


def first_of(config: dict[str, Any], *names: str) -> Any:
    """Value of the first of some fields that is in the config or in the text part of a multimodal config."""
    tables = (config, config.get("text_config") or {})
    return next((table[name] for table in tables for name in names if table.get(name) is not None), None)


# ---- defaults of the generation ---------------------------------------------------------------

_SAMPLING = {"temperature": "temp"} | {
    name: name for name in ("repetition_penalty", "top_p", "top_k", "min_p")
}
"""Fields of generation_config.json, and the names of the settings here."""
_OFF = {"top_k": (-1, 0), "repetition_penalty": (1, 0)}
"""Values that turn a setting off in other programs, and the corresponding values here."""


def generation_defaults(path: Path) -> tuple[tuple[tuple[str, float], ...], bool, tuple[str, ...]]:
    """Read a model's generation_config.json, if it has one.

    As in transformers, `do_sample: false` means greedy decoding; as in vLLM, a temperature needs no `do_sample`. A
    filter without a temperature is used at temperature 1.

    Args:
        path: Directory of the model; its files were checked.

    Returns:
        Settings by their names in `engine.settings.Settings`; True if prompts are raw text even if there is a chat
        template (`use_chat_template` is false); and a sentence for each setting that is not used.
    """
    try:
        table = read_object(path / "generation_config.json")
    except LoadError:  # missing or not JSON: mlx_lm continues, too
        return (), False, ()
    found: dict[str, float] = {}
    notes = []
    for theirs, name in _SAMPLING.items():
        value = table.get(theirs)
        if value is None:
            continue
        off, none = _OFF.get(name, (None, None))
        value = none if value == off else value
        field = BY_NAME[name]
        try:
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise SettingsError(name, "it is no number")
            value = int(value) if field.kind == "int" and value == int(value) else value
            field.check(value)
            if value != field.default or name == "temp":
                found[name] = value
        except (SettingsError, OverflowError, ValueError):  # int() of infinity or NaN
            asked = f"generation_config.json asks for {theirs} {str(value)[:40]!r}"
            notes.append(f"{asked}, which is not used: it must be {field.bounds}.")
    sampled = table.get("do_sample")
    if sampled is False and found:
        found = {name: value for name, value in found.items() if name == "repetition_penalty"} | {"temp": 0.0}
    elif sampled is True or found.keys() - {"repetition_penalty"}:
        found.setdefault("temp", 1.0)
    return tuple(found.items()), table.get("use_chat_template") is False, tuple(notes)


# ---- special tokens ----------------------------------------------------------------------------

MOST_SPECIAL = 1000
"""Maximum number of special tokens in the facts: some models have tens of thousands, reserved for later use."""
TEMPLATE_CHARACTERS = 64 * 1024
"""Maximum number of characters of a chat template's source in the facts; the longest in use have 20,000."""


def facts_with_tokens(facts: ModelFacts, path: Path, tokens: Tokens) -> ModelFacts:
    """Add the facts about the tokenizer and generation_config.json, and a note for each setting that is not used.

    Args:
        facts: Facts about the model.
        path: Directory of the model; its files were checked.
        tokens: The model's tokenizer.
    """
    sampling, raw_prompts, notes = generation_defaults(path)
    special, count = special_tokens(tokens)
    return replace(
        facts,
        eos_ids=tokens.eos_ids,
        has_chat_template=tokens.has_chat_template,
        special=special,
        special_count=count,
        chat_template=tokens.template[:TEMPLATE_CHARACTERS],
        sampling=sampling,
        raw_prompts=raw_prompts,
        notes=(*facts.notes, *notes),
    )


def special_tokens(tokens: Tokens) -> tuple[tuple[SpecialToken, ...], int]:
    """The special tokens of a tokenizer.

    Args:
        tokens: The model's tokenizer.

    Returns:
        At most `MOST_SPECIAL` tokens in the order of their ids, preferring those with a role or in the chat template;
        and the number of all. Roles are the tokenizer's names, such as `BOS` or `PAD`; every token that ends a text has
        the role `EOS`.
    """
    roles: dict[int, set[str]] = {token: {"EOS"} for token in tokens.eos_ids}
    for name, token in tokens.named_ids.items():
        roles.setdefault(token, set()).add(name.removesuffix("_token").upper())
    ids = sorted({*tokens.special_ids, *roles})
    made = [SpecialToken(id, tokens.text(id)[0], tuple(sorted(roles.get(id, ())))) for id in ids]
    first = sorted(made, key=lambda each: (not each.roles, each.text not in tokens.template))[:MOST_SPECIAL]
    return tuple(sorted(first, key=lambda each: each.id)), len(made)


# ---- support of cache settings -----------------------------------------------------------------


def probe_cache(
    model: Any, settings: LoadSettings, make_kv: MakeKV, facts: ModelFacts
) -> tuple[LoadSettings, Tail | None, ModelFacts]:
    """Run a token or two through throwaway caches to find which cache settings a model supports.

    Returns:
        The settings that this model supports; its tail, if that can be run separately; and the facts with those about
        its caches, and a note for each setting that is not used.

    Raises:
        Exception: Any exception of a model that can't run.
    """
    notes: list[str] = []
    if settings.no_kv_cache:
        settings = replace(settings, kept_kv_mib=0)
        notes.append("The KV cache is off: every step runs all tokens before it again.")
    cache = make_kv(model, settings)
    kinds = cache.kinds()
    if settings.max_kv_size is not None and hasattr(model, "make_cache"):
        settings = replace(settings, max_kv_size=None)
        notes.append("--max-kv-size is not used: this model builds its own caches.")
    unquantized = replace(settings, kv_bits=None)
    if settings.kv_bits is not None and (why := _kv_bits_problem(model, settings, cache, make_kv)):
        settings = unquantized
        notes.append(f"--kv-bits is not used{why}")
    others = _unquantizable(cache)
    if settings.kv_bits is not None and others:
        notes.append(f"--kv-bits is used only for the plain caches; {', '.join(others)} stay as they are.")
    tail = Tail(model)
    # over ranks all run the model itself, which returns the logits of a chunk
    trial = _trial_cache(model, settings, make_kv, tail.trial if make_kv is KV else model)
    sizes = _head_sizes(_trial_cache(model, unquantized, make_kv) if settings.kv_bits is not None else trial)
    facts = replace(
        facts,
        notes=(*facts.notes, *notes),
        cache_kinds=kinds,
        kv_bytes_per_token=trial.bytes_per_token(),
        head_size=next(iter(sizes)) if len(sizes) == 1 else facts.head_size,
    )
    return settings, tail if tail.fits else None, facts


def _kv_bits_problem(model: Any, settings: LoadSettings, cache: KV, make_kv: MakeKV) -> str:
    """The end of a sentence, with the reason why a model's caches can't be quantized; empty if they can."""
    if not any(quantizable for _, quantizable in cache.quantizable()):
        return f": caches of kind {', '.join(_unquantizable(cache))} can't be quantized."
    try:
        _trial_cache(model, settings, make_kv, tokens=2)
    except Exception as error:
        sizes = _head_sizes(_trial_cache(model, replace(settings, kv_bits=None), make_kv), quantizable=True)
        why = group_size_problem(sizes, settings.kv_group_size)
        return f". {why}" if why else f". This model can't run with a quantized cache ({error})."
    return ""


def _unquantizable(cache: KV) -> list[str]:
    return sorted({kind for kind, quantizable in cache.quantizable() if not quantizable})


def _head_sizes(cache: KV, quantizable: bool = False) -> set[int]:
    """Head sizes of the caches with a column for each token; with `quantizable`, only of the quantizable ones."""
    found = [(kind_of(layer), layer) for layer in cache.caches]
    found = [(kind, layer) for kind, layer in found if kind.columns and (kind.quantizable or not quantizable)]
    return {int(array.shape[-1]) for kind, layer in found for array in kind.buffers(layer)}


def _trial_cache(
    model: Any, settings: LoadSettings, make_kv: MakeKV, compute: Compute | None = None, tokens: int = 1
) -> KV:
    """Throwaway caches after one or more tokens; with `kv_bits`, quantized from the first token on."""
    trial = make_kv(model, replace(settings, quantized_kv_start=0))
    for _ in range(tokens):
        mx.eval(trial.run(compute or model, mx.array([[0]])))
    return trial


# ---- the fingerprint of the files --------------------------------------------------------------
# A fingerprint is BLAKE2b over everything that determines the model's numbers: config.json (parsed, without notes on
# its origin), and for each file of the weights and the adapter its name, size, safetensors header (name, type, shape
# and place of every tensor) and bytes. Files of up to 32 MiB are read completely, of larger ones 256 blocks of 4 KiB
# spread evenly from beginning to end. So a fingerprint can miss a change of a few numbers in a large file, but not
# another training, quantization or version. The later comparison of ids and logprobs with the recording detects those.

WHOLE_LIMIT = 32 * 2**20
"""Maximum size in bytes of a file that is read completely."""
BLOCKS, BLOCK = 256, 4096
"""Number of blocks to read of a larger file, and bytes of a block."""
HEADER_LIMIT = 100 * 2**20
"""Maximum size in bytes of a safetensors header: the limit of the safetensors library."""
_NOTES = frozenset({"_name_or_path", "transformers_version"})
"""Fields of config.json that describe a model's origin and don't affect its numbers."""


def fingerprint(directory: Path | str, adapter: Path | str | None = None) -> str:
    """The fingerprint of a model directory.

    Args:
        directory: Directory with config.json and the weights.
        adapter: Directory of the adapter, if one is used.

    Returns:
        32 hexadecimal digits; empty if a file can't be read.
    """
    digest = hashlib.blake2b(digest_size=16)
    try:
        _add(digest, Path(directory), "config.json", "model*.safetensors")
        if adapter is not None:
            _add(digest, typed(str(adapter)), "adapter_config.json", "adapters.safetensors")
    except (EngineError, OSError, ValueError, RecursionError):
        return ""
    return digest.hexdigest()


def _add(digest: Any, directory: Path, config: str, pattern: str) -> None:
    parsed = json.loads(read_regular(directory / config, CONFIG_LIMIT).decode())
    if isinstance(parsed, dict):
        parsed = {name: value for name, value in parsed.items() if name not in _NOTES}
    digest.update(json.dumps(parsed, sort_keys=True).encode())
    if not (files := sorted(directory.glob(pattern))):
        raise ValueError("no weights")
    for path in files:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            digest.update(f"{path.name} {size}\n".encode())
            if size <= WHOLE_LIMIT:
                digest.update(file.read())
                continue
            length = int.from_bytes(file.read(8), "little")
            is_header = length <= min(HEADER_LIMIT, size - 8)  # else it isn't a safetensors file
            begin = 8 + length if is_header else 8
            digest.update(file.read(begin - 8))
            for block in range(BLOCKS):
                file.seek(begin + block * max(0, size - begin - BLOCK) // (BLOCKS - 1))
                digest.update(file.read(BLOCK))
