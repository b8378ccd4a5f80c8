"""Load a model and its tokenizer through mlx_lm, and collect the facts about it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm import utils

from engine.cache.head_groups import group_size_problem
from engine.cache.kinds import kind_of
from engine.cache.live import KV
from engine.errors import Cancelled, LoadError
from engine.model import source
from engine.model.fingerprint import fingerprint
from engine.model.tokens import Tokens
from engine.paths import typed
from engine.records import Loading, ModelFacts
from engine.settings import LoadSettings, check_load

Emit = Callable[[Loading], None]
LEARNED_POSITIONS = ("wpe", "embed_positions", "position_embeddings", "position_embedding")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model ready to run, in the thread that loaded it."""

    model: Any
    tokens: Tokens
    facts: ModelFacts
    settings: LoadSettings
    """Those requested, without what this model can't do (listed in the facts' notes)."""


def load(settings: LoadSettings, emit: Emit = lambda _: None, cancel: Event | None = None) -> Loaded:
    """Load a model through mlx_lm.

    Args:
        settings: The model, and the settings of its cache.
        emit: Receives the progress.
        cancel: Stops the loading at its next file or tensor.

    Returns:
        The model, its tokenizer and the facts about both.

    Raises:
        LoadError: It can't be loaded; the message says why, the hint what to do.
        Cancelled: `cancel` was set.
    """
    cancel = cancel or Event()
    check_load(settings)
    started = time.perf_counter()
    if mx.default_device() == mx.Device(mx.cpu):
        # On Linux a compiled function calls g++ at run time and loads what it built from a shared temporary
        # folder: seconds at the first step, and no gain after it.
        mx.disable_compile()
    path = source.resolve(settings.model, emit, cancel)
    model, config = _model(path, settings)
    _adapt(model, settings)
    notes = _float32_scales(model, config, settings)
    _weights(model, emit, cancel)
    emit(Loading("tokenizer", 0, 0, path.name))
    vocabulary = _embedding_rows(model, config)
    tokens = Tokens(_tokenizer(path, config, settings), vocabulary)
    probe = _probe_cache(model, settings)
    digest = fingerprint(path, settings.adapter_path)
    facts = _facts(model, config, path, tokens, probe, (time.perf_counter() - started) * 1000)
    facts = replace(facts, notes=notes + probe.notes, fingerprint=digest)
    return Loaded(model, tokens, facts, probe.settings)


# ---- reading the files, with failures in words ------------------------------------------------


def _model(path: Path, settings: LoadSettings) -> tuple[Any, dict[str, Any]]:
    try:
        model, config = utils.load_model(path, lazy=True, trust_remote_code=settings.trust_remote_code)
    except Exception as error:  # a broken file may make mlx_lm raise anything
        raise _explain(error, path) from error
    return model, config


def _explain(error: Exception, path: Path) -> LoadError:
    """Put what mlx_lm raised into words; the cases are those observed with broken files."""
    text = str(error).strip().splitlines()[0].rstrip(" :") if str(error).strip() else type(error).__name__
    if "custom module" in text:
        return LoadError(
            f"{path} needs code of its own to run.", "Read it, and if you trust it use --trust-remote-code."
        )
    if "not supported" in text or isinstance(error, AttributeError):
        family = json.loads((path / "config.json").read_text(encoding="utf-8")).get("model_type")
        return LoadError(
            f"mlx_lm does not know the model type {family}.", "Use another model, or a newer mlx-lm."
        )
    if isinstance(error, RuntimeError) and ("safetensors" in text or "read" in text.lower()):
        return LoadError(f"The weights in {path} are damaged or cut short ({text}).", "Download them again.")
    if isinstance(error, TypeError | KeyError):
        return LoadError(
            f"{path}/config.json lacks something its model type needs ({text}).", "Download it again."
        )
    if isinstance(error, ValueError):
        return LoadError(f"The weights in {path} don't fit its config.json ({text}).", "Download both again.")
    return LoadError(f"The model in {path} can't be loaded ({text}).", "Download it again.")


def _adapt(model: Any, settings: LoadSettings) -> None:
    if settings.adapter_path is None:
        return
    path = typed(settings.adapter_path)
    for name in ("adapter_config.json", "adapters.safetensors"):
        if not (path / name).is_file():
            raise LoadError(
                f"The adapter directory {path} has no {name}.", "Give the directory mlx_lm.lora wrote."
            )
    try:
        utils.load_adapters(model, str(path))
    except Exception as error:
        raise LoadError(
            f"The adapter in {path} doesn't fit this model ({error}).", "Check its base model."
        ) from error
    model.eval()


def _tokenizer(path: Path, config: dict[str, Any], settings: LoadSettings) -> Any:
    extra = {"trust_remote_code": settings.trust_remote_code}
    try:
        return utils.load_tokenizer(path, extra, eos_token_ids=config.get("eos_token_id"))
    except Exception as error:
        if "trust_remote_code" in str(error):
            raise LoadError(
                f"The tokenizer in {path} needs code of its own.", "If you trust it use --trust-remote-code."
            ) from error
        text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise LoadError(
            f"The tokenizer in {path} can't be read ({text}).", "Download its files again."
        ) from error


def _weights(model: Any, emit: Emit, cancel: Event) -> None:
    """Evaluate the lazy weights tensor by tensor: as fast as at once, with progress, and it can be cancelled."""
    parameters = _parameters(model)
    for done, (name, array) in enumerate(parameters):
        if cancel.is_set():
            raise Cancelled
        try:
            mx.eval(array)
        except RuntimeError as error:
            raise LoadError(
                f"The weights are damaged at {name} ({error}).", "Download them again."
            ) from error
        emit(Loading("weights", done + 1, len(parameters), name))


def _float32_scales(model: Any, config: dict[str, Any], settings: LoadSettings) -> tuple[str, ...]:
    """Compute a quantized model in float32 where the settings say so or, on the CPU backend, don't forbid it."""
    quantized = config.get("quantization") is not None
    wanted = settings.float32_scales
    if wanted is None:
        wanted = quantized and mx.default_device() == mx.Device(mx.cpu)
    if not wanted or not quantized:
        return ()
    model.set_dtype(mx.float32)
    return ("Quantized weights are computed with float32 scales (7 to 40 times faster on the CPU backend).",)


# ---- what this model can do -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _CacheProbe:
    settings: LoadSettings
    notes: tuple[str, ...]
    kinds: tuple[Any, ...]
    bytes_per_token: int | None


def _probe_cache(model: Any, settings: LoadSettings) -> _CacheProbe:
    """Run two tokens through throwaway caches to find which cache settings this model supports."""
    notes: list[str] = []
    if settings.no_kv_cache:
        settings = replace(settings, kept_kv_mib=0)
        notes.append("The KV cache is off: every step runs all tokens before it again.")
    cache = KV(model, settings)
    kinds = cache.kinds()
    if settings.max_kv_size is not None and hasattr(model, "make_cache"):
        settings = replace(settings, max_kv_size=None)
        notes.append("--max-kv-size is not used: this model builds its own caches.")
    if settings.kv_bits is not None:
        settings, more = _probe_kv_bits(model, settings, cache)
        notes += more
    return _CacheProbe(settings, tuple(notes), kinds, _trial_cache(model, settings).bytes_per_token())


def _probe_kv_bits(model: Any, settings: LoadSettings, cache: KV) -> tuple[LoadSettings, list[str]]:
    off = replace(settings, kv_bits=None)
    kinds = [kind_of(layer) for layer in cache.caches]
    others = sorted({kind.name for kind in kinds if not kind.quantizable})
    if not any(kind.quantizable for kind in kinds):
        return off, [f"--kv-bits is not used: caches of kind {', '.join(others)} can't be quantized."]
    try:
        _trial_cache(model, settings, tokens=2)
    except Exception as error:
        why = group_size_problem(_head_sizes(model, off), settings.kv_group_size)
        why = why or f"This model can't run with a quantized cache ({error})."
        return off, [f"--kv-bits is not used. {why}"]
    if others:
        return settings, [
            f"--kv-bits is used for the plain caches alone; {', '.join(others)} stay as they are."
        ]
    return settings, []


def _head_sizes(model: Any, settings: LoadSettings) -> set[int]:
    """Of the keys and values that could be quantized."""
    layers = [(kind_of(cache), cache) for cache in _trial_cache(model, settings).caches]
    return {int(array.shape[-1]) for kind, kv in layers if kind.quantizable for array in kind.buffers(kv)}


def _trial_cache(model: Any, settings: LoadSettings, tokens: int = 1) -> KV:
    """Throwaway caches after one or more tokens; with `kv_bits`, quantized from the first on."""
    trial = KV(model, replace(settings, quantized_kv_start=0))
    for _ in range(tokens):
        mx.eval(model(mx.array([[0]]), cache=trial.caches))
        trial.advance(1)
    return trial


def _embedding_rows(model: Any, config: dict[str, Any]) -> int:
    """Number of ids that may reach the model: an id beyond ends the process."""
    rows = [
        int(module.weight.shape[0])
        for name, module in model.named_modules()
        if isinstance(module, nn.Embedding | nn.QuantizedEmbedding)
        and name.split(".")[-1] not in LEARNED_POSITIONS
    ]
    return max(rows) if rows else int(_first(config, "vocab_size") or 0)


# ---- facts ------------------------------------------------------------------------------------


def _first(config: dict[str, Any], *names: str) -> Any:
    """The first of some fields that the config, or the text part of a multimodal one, has."""
    for table in (config, config.get("text_config") or {}):
        for name in names:
            if table.get(name) is not None:
                return table[name]
    return None


def _facts(
    model: Any, config: dict[str, Any], path: Path, tokens: Tokens, probe: _CacheProbe, load_ms: float
) -> ModelFacts:
    hidden, heads = (
        _first(config, "hidden_size", "n_embd", "d_model"),
        _first(config, "num_attention_heads", "n_head"),
    )
    head_size = _first(config, "head_dim") or (hidden // heads if hidden and heads else None)
    return ModelFacts(
        name=path.name
        if not _is_snapshot(path)
        else path.parent.parent.name.removeprefix("models--").replace("--", "/"),
        path=str(path),
        family=str(config.get("model_type")),
        layers=_layers(model, config),
        heads=heads,
        kv_heads=_first(config, "num_key_value_heads") or heads,
        head_size=head_size,
        hidden_size=hidden,
        vocabulary=tokens.vocabulary,
        parameters=utils.get_total_parameters(model),
        weight_bytes=sum(array.nbytes for _, array in _parameters(model)),
        dtype=_dtype(model),
        quantization=_quantization(config),
        context_window=_first(
            config, "max_position_embeddings", "n_positions", "max_sequence_length", "seq_length"
        ),
        hard_window=any(name.split(".")[-1] in LEARNED_POSITIONS for name, _ in model.named_modules()),
        cache_kinds=probe.kinds,
        kv_bytes_per_token=probe.bytes_per_token,
        eos_ids=tokens.eos_ids,
        has_chat_template=tokens.has_chat_template,
        backend="cpu" if mx.default_device() == mx.Device(mx.cpu) else "gpu",
        load_ms=load_ms,
    )


def _is_snapshot(path: Path) -> bool:
    return path.parent.name == "snapshots" and path.parent.parent.name.startswith("models--")


def _parameters(model: Any) -> list[tuple[str, mx.array]]:
    return cast(list[tuple[str, mx.array]], tree_flatten(model.parameters()))


def _layers(model: Any, config: dict[str, Any]) -> int:
    try:
        return len(model.layers)
    except (AttributeError, TypeError):
        return int(_first(config, "num_hidden_layers", "n_layer", "n_layers") or 0)


def _dtype(model: Any) -> str:
    """The type of most of the weights' floating-point numbers; the packed ones of quantized weights don't count."""
    sizes: dict[str, int] = {}
    for _, array in _parameters(model):
        if mx.issubdtype(array.dtype, mx.floating):
            name = str(array.dtype).removeprefix("mlx.core.")
            sizes[name] = sizes.get(name, 0) + array.size
    return max(sizes, key=lambda name: sizes[name], default="float32")


def _quantization(config: dict[str, Any]) -> str | None:
    scheme = config.get("quantization")
    if not isinstance(scheme, dict):
        return None
    return f"{scheme.get('bits')}-bit, group {scheme.get('group_size')}, {scheme.get('mode', 'affine')}"
