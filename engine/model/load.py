"""Load a model and its tokenizer through mlx_lm, and collect the facts about it."""

from __future__ import annotations

import glob
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm import utils
from msgspec import Struct, field
from msgspec.structs import replace

from engine.cache.live import KV
from engine.errors import Cancelled, LoadError, RankError, first_line
from engine.files import typed
from engine.libraries import fill_in
from engine.model import blas, directory, source
from engine.model.facts import CacheProbe, Whole, facts_of, fingerprint, first_of, probe_cache, whole_of
from engine.model.forward import FirstUses, MakeKV, Runner, tf32_note
from engine.model.layers import Tail
from engine.model.source import Emit
from engine.model.tokens import Tokens, plain_tokenizer
from engine.model.weights import (
    arrays_of,
    keep_in_memory,
    quantization_of,
    quantize,
    set_dtype,
    warning_of,
    weights_in,
)
from engine.protocol import Loading, ModelFacts
from engine.setting import check
from engine.settings import LoadSettings

READ_AT_ONCE = 16 << 20
"""Bytes of weights that are read together at least: after each group the engine waits for MLX and tells the screen."""
_ON_A_MAC = "It needs an Apple GPU: run it on a Mac, or use another model."
_LIMITS = {
    "only supports float32": "Load it with --dtype float32.",
    "only support float32": "Load it with --dtype float32.",
    "Metal": _ON_A_MAC,
    "metal": _ON_A_MAC,
}
"""What a backend says that has no way to compute something, and what to do. It says so in a RuntimeError, which no
wrong config.json leads to: shapes that don't fit are a ValueError."""


def explain(error: Exception, path: Path) -> LoadError:
    """Put what mlx_lm raised into words; the cases are those observed with broken files."""
    text = first_line(error)
    if "custom module" in str(error):  # after the path, which may be long
        return LoadError(
            f"The model in {path} needs code of its own to run.",
            "Read that code, and if you trust it, add --trust-remote-code.",
        )
    if "Model type" in text or "has no attribute 'Model" in text:
        family = directory.read_object(path / "config.json").get("model_type")
        return LoadError(
            f"mlx_lm does not know the model type {family}.", "Use another model, or a newer mlx-lm."
        )
    if (foreign := directory.format_error(path)) is not None:
        return foreign
    if isinstance(error, RuntimeError) and ("safetensors" in text or "read" in text.lower()):
        return LoadError(f"The weights in {path} are damaged or cut short ({text}).", "Download them again.")
    if isinstance(error, TypeError | KeyError | AttributeError):
        return LoadError(
            f"{path}/config.json lacks something that mlx_lm needs for its model type, or has it in another form "
            f"({text}).",
            "Download it again; if it is whole, mlx_lm can't load this model.",
        )
    if isinstance(error, ValueError):
        return LoadError(
            f"The weights in {path} don't fit its config.json, as mlx_lm reads it ({text}).",
            "Download both again; if they are whole, mlx_lm can't load this model.",
        )
    return LoadError(
        f"mlx_lm can't load the model in {path} ({text}).", "Download it again, or use another model."
    )


def cannot_run(error: Exception, path: Path, dtype: str) -> LoadError:
    """Why a model that was built can't run: this machine, the type that it was to compute in, or its files.

    Args:
        error: What the first forward raised.
        path: The model's folder.
        dtype: The setting.
    """
    why = first_line(error)
    if isinstance(error, RuntimeError):
        hint = next((hint for part, hint in _LIMITS.items() if part in why), "Use another model or machine.")
        backend = "CPU" if mx.default_device() == mx.Device(mx.cpu) else "GPU"
        return LoadError(f"The model in {path} can't run on the {backend} here ({why}).", hint)
    if dtype not in ("auto", "file"):
        return LoadError(f"The model in {path} can't run in {dtype} here ({why}).", "Leave --dtype out.")
    return LoadError(
        f"The model in {path} can't run: its config.json, or the adapter's, may be wrong ({why}).",
        "Download it again.",
    )


def bad_tokenizer(path: Path, error: Exception) -> LoadError:
    """The error for a tokenizer whose files can't be read, or config.json, which transformers reads with them."""
    frames = traceback.extract_tb(error.__traceback__)
    if any(Path(frame.filename).name.startswith("configuration_") for frame in frames):
        return LoadError(
            f"transformers can't read {path}/config.json, which it needs for the tokenizer ({first_line(error)}).",
            "Correct the field, or use another version of transformers.",
        )
    if isinstance(error, ImportError):
        if not (path / "tokenizer.json").exists():
            return LoadError(
                f"The tokenizer in {path} is of a class that can't be loaded here ({first_line(error)}).",
                "Use a version of the model that has a tokenizer.json.",
            )
        named = directory.read_object(path / "tokenizer_config.json").get("tokenizer_class")
        return LoadError(
            f"The tokenizer in {path} is of the class {named}, which mlx_lm can't load here.",
            'Set tokenizer_class to "TokenizersBackend" in its tokenizer_config.json: tokenizer.json has all of it.',
        )
    return LoadError(
        f"The tokenizer in {path} can't be read ({first_line(error)}).", "Download its files again."
    )


PLAIN_LAYERS = (nn.Linear, nn.Embedding, nn.RMSNorm, nn.LayerNorm)


class Loaded(Struct, frozen=True):
    """A model ready to run, in the thread that loaded it."""

    model: Any
    tokens: Tokens
    facts: ModelFacts
    settings: LoadSettings
    """Those requested, without what this model can't do (listed in the facts' notes)."""
    first_uses: FirstUses = field(default_factory=FirstUses)
    """Work that it did since it was loaded, in whatever session."""
    make_kv: MakeKV = KV
    """Makes its caches."""
    tail: Tail | None = None
    """Its end, where that can be run alone."""
    divided: bool = False
    """True if several processes compute it."""

    def runner(self) -> Runner:
        """A runner on it with its own empty caches."""
        return Runner(self.model, self.settings, self.first_uses, self.make_kv)


class Quantization(Struct, frozen=True):
    """How weights are quantized while they are loaded."""

    bits: int
    group_size: int


class Prepared(Struct, frozen=True):
    """A whole model that is built, but for its weights' values."""

    path: Path
    model: Any
    config: dict[str, Any]
    whole: Whole
    stored: str
    """The form of its weights in their files."""
    dtype: str
    """That it computes in, of `engine.settings.DTYPES` without `auto`."""
    blas: str
    """Name of the BLAS that serves it."""
    notes: tuple[str, ...]


def load(
    settings: LoadSettings,
    emit: Emit = lambda _: None,
    cancel: Event | None = None,
    quantization: Quantization | None = None,
) -> Loaded:
    """Load a model through mlx_lm.

    Args:
        settings: The model, and the settings of its cache.
        emit: Receives the progress.
        cancel: Stops the loading at its next file or group of tensors.
        quantization: Quantize plain weights, as mlx_lm.convert would have before they were written.

    Returns:
        The model, its tokenizer and the facts about both.

    Raises:
        LoadError: It can't be loaded; the message says why, the hint what to do.
        Cancelled: `cancel` was set.
    """
    cancel = cancel or Event()
    check(settings)
    started = time.perf_counter()
    prepared = prepare(settings, emit, cancel, quantization)
    beside = ThreadPoolExecutor(1, "fingerprint")  # 30 ms for a small model, another core's
    digest = beside.submit(fingerprint, prepared.path, settings.adapter_path)
    beside.shutdown(wait=False)
    warning, tokens = read(prepared, settings, emit, cancel)
    loaded = finished(prepared, settings, tokens, started, warning=warning)
    return replace(loaded, facts=replace(loaded.facts, fingerprint=digest.result()))


def read(prepared: Prepared, settings: LoadSettings, emit: Emit, cancel: Event) -> tuple[str, Tokens]:
    """Read the weights and the tokenizer of a model.

    Returns:
        Why computing will be slow, empty if it won't, and the tokenizer.

    Raises:
        LoadError: They are damaged.
        Cancelled: `cancel` was set.
    """
    warning = read_weights(prepared.model, emit, cancel)
    emit(Loading("tokenizer", 0, 0, prepared.path.name))
    return warning, _tokens(prepared.path, prepared.config, settings, prepared.whole.rows)


def finished(
    prepared: Prepared,
    settings: LoadSettings,
    tokens: Tokens,
    started: float,
    make_kv: MakeKV = KV,
    warning: str = "",
) -> Loaded:
    """Find out what a model that was read can do.

    Args:
        prepared: The model.
        settings: Those that it was loaded with.
        tokens: Its tokenizer.
        started: `time.perf_counter()` when its loading began.
        make_kv: Makes its caches; not `KV` itself for a model that several processes compute.
        warning: From `read_weights`.

    Raises:
        LoadError: The model can't run.
    """
    probe = _probe(prepared.path, prepared.model, settings, make_kv)
    ms = (time.perf_counter() - started) * 1000
    whole = prepared.whole
    facts = facts_of(whole, prepared.config, prepared.path, tokens, probe, ms)
    facts = replace(
        facts,
        notes=(
            *prepared.notes,
            *filter(None, (warning, tf32_note(facts.dtype))),
            *probe.notes,
            *facts.notes,
        ),
        blas=prepared.blas,
        stored="" if prepared.stored == whole.weights else prepared.stored,
    )
    return Loaded(
        prepared.model,
        tokens,
        facts,
        probe.settings,
        make_kv=make_kv,
        tail=probe.tail,
        divided=make_kv is not KV,
    )


def prepare(
    settings: LoadSettings,
    emit: Emit = lambda _: None,
    cancel: Event | None = None,
    quantization: Quantization | None = None,
) -> Prepared:
    """Build a model as it will compute, with lazy weights: nothing of them is read yet.

    Raises:
        LoadError: It can't be loaded; the message says why, the hint what to do.
        Cancelled: `cancel` was set.
    """
    if mx.default_device() == mx.Device(mx.cpu):
        # On Linux a compiled function calls g++ at run time and loads what it built from a shared temporary
        # folder: seconds at the first step, and no gain after it.
        mx.disable_compile()
    served = blas.install(settings.blas)
    path = source.resolve(settings.model, emit, cancel or Event())
    model, config = _model(path, settings)
    _adapt(model, settings)
    stored, packed = weights_in(model), quantization_of(model)
    if quantization is not None:
        quantize(model, quantization.bits, quantization.group_size)
    kept = quantization_of(model) is not None and (
        quantization is not None or not unpacked_by_itself(settings)
    )
    wanted = "file" if kept and settings.dtype == "auto" else settings.dtype
    notes = (*served.notes, *set_dtype(model, wanted, served.fast), *_float32_scales(model, settings))
    keep_in_memory()
    mx.eval(
        mx.random.state
    )  # mlx_lm's layers drew first weights, and each draw is kept in the graph of the next key
    whole = whole_of(model, config)
    dtype = settings.dtype
    if dtype == "auto":
        computed = "dequantized" if packed else whole.dtype
        dtype = "file" if whole.quantization or whole.weights == stored else computed
    return Prepared(path, model, config, whole, stored, dtype, served.name, notes)


def load_tokenizer(
    settings: LoadSettings, emit: Emit = lambda _: None, cancel: Event | None = None
) -> Tokens:
    """Load a model's tokenizer alone: its weights are neither read nor downloaded, and need not be there.

    Args:
        settings: The model.
        emit: Receives the progress.
        cancel: Stops a download.

    Returns:
        The tokenizer, as `load` makes it. Its vocabulary is that of config.json, or without bound where that has none.

    Raises:
        LoadError: It can't be loaded; the message says why, the hint what to do.
        Cancelled: `cancel` was set.
    """
    check(settings)
    path = source.resolve(settings.model, emit, cancel or Event(), weights=False)
    emit(Loading("tokenizer", 0, 0, path.name))
    try:
        config = utils.load_config(path)
        rows = first_of(config, "vocab_size")
    except Exception as error:  # its fields may be anything
        raise explain(error, path) from error
    return _tokens(path, config, settings, rows if type(rows) is int else sys.maxsize)


# ---- reading the files, with failures in words ------------------------------------------------


def _model(path: Path, settings: LoadSettings) -> tuple[Any, dict[str, Any]]:
    try:
        with _without_brackets(path) as plain:
            model, config = utils.load_model(plain, lazy=True, trust_remote_code=settings.trust_remote_code)
    except Exception as error:  # a broken file may make mlx_lm raise anything
        raise explain(error, path) from error
    _check_weights(model, path)
    return model, config


@contextmanager
def _without_brackets(path: Path) -> Iterator[Path]:
    """A path of a directory that mlx_lm can search: it takes [ ] * and ? in a name for a pattern."""
    if glob.escape(str(path)) == str(path):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="inspector-") as folder:
        link = Path(folder, "model")
        link.symlink_to(path.absolute())
        yield link


def _check_weights(model: Any, path: Path) -> None:
    """Refuse integers in the place of weights, which mlx_lm would compute with."""
    for name, module in model.named_modules():
        weight = module.get("weight") if isinstance(module, PLAIN_LAYERS) else None
        if weight is not None and not mx.issubdtype(weight.dtype, mx.floating):
            kind = str(weight.dtype).removeprefix("mlx.core.")
            raise directory.format_error(path) or LoadError(
                f"The weights in {path} don't fit its config.json ({name}.weight holds numbers of type {kind}).",
                "Download both again.",
            )


def _adapt(model: Any, settings: LoadSettings) -> None:
    if settings.adapter_path is None:
        return
    path = typed(settings.adapter_path)
    directory.check_adapter(path)
    try:
        utils.load_adapters(model, str(path))
    except (AttributeError, KeyError, TypeError) as error:
        raise LoadError(
            f"{path}/adapter_config.json lacks something that mlx_lm needs, or has it in another form "
            f"({first_line(error)}).",
            "Give the directory that mlx_lm.lora wrote.",
        ) from error
    except Exception as error:
        raise LoadError(
            f"The adapter in {path} doesn't fit this model ({first_line(error)}).", "Check its base model."
        ) from error
    model.eval()


def _tokens(path: Path, config: dict[str, Any], settings: LoadSettings, vocabulary: int) -> Tokens:
    eos = config.get("eos_token_id")
    if not all(type(token) is int for token in (eos if isinstance(eos, list) else [eos or 0])):
        raise LoadError(
            f"The eos_token_id in {path}/config.json or generation_config.json is not a token id.",
            "Download them again.",
        )
    try:
        tokens = Tokens(_tokenizer(path, config, settings), vocabulary)
        for text in settings.extra_eos_token:
            tokens.add_eos(text)
        _ = tokens.spared  # the first text that it encodes
        return tokens
    except LoadError:
        raise
    except Exception as error:  # its files may say anything
        raise bad_tokenizer(path, error) from error


def _tokenizer(path: Path, config: dict[str, Any], settings: LoadSettings) -> Any:
    if (plain := plain_tokenizer(path, config)) is not None:
        return plain
    extra = {"trust_remote_code": settings.trust_remote_code}
    fill_in()
    try:
        tokenizer = utils.load_tokenizer(path, extra, eos_token_ids=config.get("eos_token_id"))
        _check_class(tokenizer, path)
        return tokenizer
    except LoadError:
        raise
    except Exception as error:
        if "trust_remote_code" in str(error):
            raise LoadError(
                f"The tokenizer in {path} needs code of its own.",
                "If you trust that code, add --trust-remote-code.",
            ) from error
        raise bad_tokenizer(path, error) from error


def _check_class(tokenizer: Any, path: Path) -> None:
    """Refuse a class that makes of tokenizer.json a tokenizer of another kind, which can't encode every text.

    Args:
        tokenizer: As mlx_lm loads it.
        path: Of the model.

    Raises:
        LoadError: With the class.
    """
    try:
        tokenizer.encode("Ab 1 é 世 🙂", add_special_tokens=False)
    except Exception as error:
        own = directory.read_object(path / "tokenizer.json", directory.VALUES_OF_VOCABULARY).get("model")
        made = type(getattr(getattr(tokenizer, "backend_tokenizer", None), "model", None)).__name__
        if isinstance(own, dict) and own.get("type", made) != made:
            settings = directory.read_object(path / "tokenizer_config.json")
            raise LoadError(
                f"The tokenizer in {path} is {own['type']}, and its tokenizer_class, "
                f"{settings.get('tokenizer_class')}, makes a {made} of it that can't encode every text "
                f"({first_line(error)}).",
                'Set tokenizer_class to "TokenizersBackend" in its tokenizer_config.json.',
            ) from error


def read_weights(model: Any, emit: Emit, cancel: Event) -> str:
    """Evaluate the lazy weights in groups of tensors: as fast as at once, with progress, and it can be cancelled.

    Returns:
        Why computing with them will be slow, empty where there is memory for them; it is emitted before the first.

    Raises:
        LoadError: They are damaged.
        Cancelled: `cancel` was set.
    """
    parameters = arrays_of(model)
    warning = warning_of(sum(array.nbytes for _, array in parameters))
    emit(Loading("weights", 0, len(parameters), "", warning))
    group, size = list[mx.array](), 0
    for done, (name, array) in enumerate(parameters, start=1):
        group.append(array)
        size += array.nbytes
        if size < READ_AT_ONCE and done < len(parameters):
            continue
        if cancel.is_set():
            raise Cancelled
        try:
            mx.eval(group)
        except RuntimeError as error:
            raise LoadError(
                f"The weights are damaged at or before {name} ({error}).", "Download them again."
            ) from error
        emit(Loading("weights", done, len(parameters), name, warning))
        group, size = [], 0
    return warning


def float32_scales(settings: LoadSettings) -> bool:
    """True if a quantized model is computed with float32 scales under these settings."""
    wanted = settings.float32_scales
    if wanted is None:
        wanted = mx.default_device() == mx.Device(mx.cpu)
    return wanted and settings.dtype in ("auto", "file")


def unpacked_by_itself(settings: LoadSettings) -> bool:
    """True if quantized weights may be unpacked without being asked for: not if something was said of their scales."""
    return settings.dtype == "auto" and settings.float32_scales is None


def _float32_scales(model: Any, settings: LoadSettings) -> tuple[str, ...]:
    """Compute a quantized model in float32 where the settings say so or, on the CPU backend, don't forbid it."""
    if quantization_of(model) is None or not float32_scales(settings):
        return ()
    scales = any(
        mx.issubdtype(a.dtype, mx.floating) for name, a in arrays_of(model) if name.endswith(".scales")
    )
    model.set_dtype(mx.float32)
    what = (
        "Quantized weights are computed with float32 scales (7 to 40 times faster on the CPU backend);"
        if scales
        else "All but the quantized weights, whose scales are bytes, is computed in float32 (3 to 5 times faster on "
        "the CPU backend);"
    )
    return (f"{what} the KV cache is float32 then, too.",)


# ---- what this model can do -------------------------------------------------------------------


def _probe(path: Path, model: Any, settings: LoadSettings, make_kv: MakeKV) -> CacheProbe:
    try:
        return probe_cache(model, settings, make_kv)
    except RankError:
        raise
    except Exception as error:  # the first forward: a config that could be built may not run
        raise cannot_run(error, path, settings.dtype) from error
