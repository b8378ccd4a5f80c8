"""Load a model and its tokenizer through mlx_lm, and collect the facts about it."""

from __future__ import annotations

import glob
import re
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm import utils
from mlx_lm.utils import maybe_set_recommended_wired_limit
from msgspec import Struct, field
from msgspec.structs import replace

from engine import pocket
from engine.cache.live import KV
from engine.errors import Cancelled, LoadError, RankError, first_line
from engine.files import typed
from engine.model import directory
from engine.model import facts as model_facts
from engine.model.download import cached, download
from engine.model.forward import MakeKV, Runner, Work, tf32_note
from engine.model.layers import Tail
from engine.model.tokens import Tokens, plain_tokenizer
from engine.patches import blas
from engine.patches.imports import complete
from engine.protocol import Loading, ModelFacts
from engine.setting import check
from engine.settings import LoadSettings

Emit = Callable[[Loading], None]
READ_AT_ONCE = 16 << 20
"""Minimum bytes of weights in a group; after each group the engine waits for MLX and reports the progress."""
_LIMITS = {
    "only supports float32": "Load it with --dtype float32.",
    "only support float32": "Load it with --dtype float32.",
    "metal": "It needs an Apple GPU: run it on a Mac, or use another model.",
}
"""Hints by a part of the message if the backend can't compute something. That is always a RuntimeError; a wrong
config.json gives a ValueError, since shapes don't fit."""


def explain(error: Exception, path: Path) -> LoadError:
    """Convert an error of mlx_lm; the cases are those observed with broken files."""
    text = first_line(error)
    unknown = "Model type" in text or "has no attribute 'Model" in text
    if "custom module" in str(error):  # `text` is cut off, perhaps in a long path before these words
        message = f"The model in {path} needs code of its own to run."
        hint = "Read that code, and if you trust it, add --trust-remote-code."
    elif unknown:
        family = directory.read_object(path / "config.json").get("model_type")
        message = f"mlx_lm does not know the model type {family}."
        hint = "Use another model, or a newer mlx-lm."
    elif (foreign := directory.format_error(path)) is not None:
        return foreign
    elif isinstance(error, RuntimeError) and ("safetensors" in text or "read" in text.lower()):
        message, hint = f"The weights in {path} are damaged or cut short ({text}).", "Download them again."
    elif isinstance(error, TypeError | KeyError | AttributeError):
        lacks = f"{path}/config.json lacks something that mlx_lm needs for its model type"
        message = f"{lacks}, or has it in a different form ({text})."
        hint = "Download it again; if it is whole, mlx_lm can't load this model."
    elif isinstance(error, ValueError):
        message = f"The weights in {path} don't fit its config.json, as mlx_lm reads it ({text})."
        hint = "Download both again; if they are whole, mlx_lm can't load this model."
    else:
        message = f"mlx_lm can't load the model in {path} ({text})."
        hint = "Download it again, or use another model."
    return LoadError(message, hint)


def cannot_run(error: Exception, path: Path, dtype: str) -> LoadError:
    """The error for a model that can't run, because of this machine, the type to compute in, or its files.

    Args:
        error: The exception of the first forward pass.
        path: The model's directory.
        dtype: The setting `dtype`.
    """
    why = first_line(error)
    message = f"The model in {path} can't run: its config.json, or the adapter's, may be wrong ({why})."
    hint = "Download it again."
    if isinstance(error, RuntimeError):
        backend = "CPU" if mx.default_device() == mx.Device(mx.cpu) else "GPU"
        message = f"The model in {path} can't run on the {backend} here ({why})."
        hints = (hint for part, hint in _LIMITS.items() if part in why.lower())
        hint = next(hints, "Use another model or machine.")
    elif dtype not in ("auto", "file"):
        message, hint = f"The model in {path} can't run in {dtype} here ({why}).", "Leave --dtype out."
    return LoadError(message, hint)


def bad_tokenizer(path: Path, error: Exception) -> LoadError:
    """The error for a tokenizer with files that can't be read, or for a config.json that transformers can't read."""
    text, names = first_line(error), (frame.filename for frame in traceback.extract_tb(error.__traceback__))
    message, hint = f"The tokenizer in {path} can't be read ({text}).", "Download its files again."
    if "trust_remote_code" in str(error):
        message = f"The tokenizer in {path} needs code of its own."
        hint = "If you trust that code, add --trust-remote-code."
    elif any(Path(name).name.startswith("configuration_") for name in names):
        message = f"transformers can't read {path}/config.json, which it needs for the tokenizer ({text})."
        hint = "Correct the field, or use another version of transformers."
    elif isinstance(error, ImportError) and not (path / "tokenizer.json").exists():
        message = f"The tokenizer in {path} is of a class that can't be loaded here ({text})."
        hint = "Use a version of the model that has a tokenizer.json."
    elif isinstance(error, ImportError):
        named = directory.read_object(path / "tokenizer_config.json").get("tokenizer_class")
        message = f"The tokenizer in {path} is of the class {named}, which mlx_lm can't load here."
        hint = f"{_SET_CLASS}: tokenizer.json has all of it."
    return LoadError(message, hint)


_SET_CLASS = 'Set tokenizer_class to "TokenizersBackend" in its tokenizer_config.json'
PLAIN_LAYERS = (nn.Linear, nn.Embedding, nn.RMSNorm, nn.LayerNorm)


class Loaded(Struct, frozen=True):
    """A model ready to run, in the thread that loaded it."""

    model: Any
    tokens: Tokens
    facts: ModelFacts
    settings: LoadSettings
    """The requested settings, without those that this model doesn't support (listed in the facts' notes)."""
    done: set[Work] = field(default_factory=set)
    """Kinds of work that the model has done since it was loaded, in any session."""
    make_kv: MakeKV = KV
    tail: Tail | None = None
    """The model's tail, if that can be run separately."""
    divided: bool = False
    """True if several processes compute the model."""

    def runner(self) -> Runner:
        """A runner on the model with new, empty caches."""
        return Runner(self.model, self.settings, self.done, self.make_kv)


class Prepared(Struct, frozen=True):
    """A complete model with lazy weights."""

    path: Path
    model: Any
    config: dict[str, Any]
    dtype: str
    """The type to compute in, one of `engine.settings.DTYPES` except `auto`."""
    facts: ModelFacts
    """The facts that need neither the tokenizer nor the caches."""


def load(
    settings: LoadSettings,
    emit: Emit = lambda _: None,
    cancel: Event | None = None,
    quantization: tuple[int, int] | None = None,
) -> Loaded:
    """Load a model through mlx_lm.

    Args:
        settings: The model, and the settings of its cache.
        emit: Receives the progress.
        cancel: Stops the loading at the next file or group of tensors.
        quantization: Bits and group size to quantize plain weights with, as in mlx_lm.convert; None to leave them as
            they are.

    Returns:
        The model, its tokenizer and the facts about both.

    Raises:
        LoadError: The model can't be loaded.
        Cancelled: `cancel` was set.
    """
    cancel = cancel or Event()
    check(settings)
    started = time.perf_counter()
    prepared = prepare(settings, emit, cancel, quantization)
    beside = ThreadPoolExecutor(1, "fingerprint")  # 30 ms for a small model, on another core
    digest = beside.submit(model_facts.fingerprint, prepared.path, settings.adapter_path)
    beside.shutdown(wait=False)
    warning, tokens = read(prepared, settings, emit, cancel)
    loaded = finished(prepared, settings, tokens, started, warning=warning)
    return replace(loaded, facts=replace(loaded.facts, fingerprint=digest.result()))


def read(prepared: Prepared, settings: LoadSettings, emit: Emit, cancel: Event) -> tuple[str, Tokens]:
    """Read the weights and the tokenizer of a model.

    Returns:
        The reason why computing will be slow (empty if it won't), and the tokenizer.

    Raises:
        LoadError: The files are damaged.
        Cancelled: `cancel` was set.
    """
    warning = read_weights(prepared.model, emit, cancel)
    emit(Loading("tokenizer", 0, 0, prepared.path.name))
    return warning, _tokens(prepared.path, prepared.config, settings, prepared.facts.vocabulary)


def finished(
    prepared: Prepared,
    settings: LoadSettings,
    tokens: Tokens,
    started: float,
    make_kv: MakeKV = KV,
    warning: str = "",
) -> Loaded:
    """Complete the facts about a model after its weights were read.

    Args:
        prepared: The model.
        settings: The settings to load it with.
        tokens: Its tokenizer.
        started: `time.perf_counter()` at the beginning of the loading.
        make_kv: Makes its caches; other than `KV` for a model that several processes compute.
        warning: Result of `read_weights`.

    Raises:
        LoadError: The model can't run.
    """
    path, model, facts = prepared.path, prepared.model, prepared.facts
    try:
        settings, tail, probed = model_facts.probe_cache(model, settings, make_kv, facts)
    except RankError:
        raise
    except Exception as error:  # the first forward pass may fail even if the model could be built
        raise cannot_run(error, path, settings.dtype) from error
    ms = (time.perf_counter() - started) * 1000
    slow = filter(None, (warning, tf32_note(facts.dtype)))
    notes = (*facts.notes, *slow, *probed.notes[len(facts.notes) :])
    facts = replace(probed, notes=notes, load_ms=ms, free_bytes=model_facts.free_bytes())
    facts = model_facts.facts_with_tokens(facts, path, tokens)
    return Loaded(model, tokens, facts, settings, make_kv=make_kv, tail=tail, divided=make_kv is not KV)


def prepare(
    settings: LoadSettings,
    emit: Emit = lambda _: None,
    cancel: Event | None = None,
    quantization: tuple[int, int] | None = None,
) -> Prepared:
    """Build a model with lazy weights, in the type that it will compute in.

    Args:
        settings: This and the other arguments are the same as for `load`.

    Raises:
        LoadError: The model can't be loaded.
        Cancelled: `cancel` was set.
    """
    if mx.default_device() == mx.Device(mx.cpu):
        # On Linux a compiled function calls g++ at run time and loads the result from a shared temporary folder: that
        # takes seconds at the first step, and gains nothing later.
        mx.disable_compile()
    served = blas.install(settings.blas)
    path = resolve(settings.model, emit, cancel or Event())
    try:
        with _without_brackets(path) as plain:
            model, config = utils.load_model(plain, lazy=True, trust_remote_code=settings.trust_remote_code)
    except Exception as error:  # a broken file may make mlx_lm raise anything
        raise explain(error, path) from error
    _check_weights(model, path)
    if settings.adapter_path is not None:
        _adapt(model, typed(settings.adapter_path))
    stored, packed = model_facts.weights_in(model), model_facts.quantization_of(model)
    if quantization is not None:
        model_facts.quantize(model, *quantization)
    asked = quantization is not None or not model_facts.unpacked_by_itself(settings)
    stays = settings.dtype == "auto" and asked and model_facts.quantization_of(model) is not None
    notes = model_facts.set_dtype(model, "file" if stays else settings.dtype, bool(served.name))
    notes = (*served.notes, *notes, *model_facts.set_float32_scales(model, settings))
    # Weights that are not wired may be paged out while the user thinks. As in mlx_lm's server, Metal may wire as much
    # memory as it recommends, for the life of the process.
    maybe_set_recommended_wired_limit()
    # mlx_lm's layers drew random initial weights, and each draw stays alive in the graph of the next key
    mx.eval(mx.random.state)
    facts = model_facts.facts_of(model, config, path)
    computed = model_facts.weights_in(model)
    facts = replace(facts, notes=notes, blas=served.name, stored="" if stored == computed else stored)
    dtype = settings.dtype
    if dtype == "auto":
        as_stored = facts.quantization or computed == stored
        dtype = "file" if as_stored else "dequantized" if packed else facts.dtype
    return Prepared(path, model, config, dtype, facts)


def load_tokenizer(
    settings: LoadSettings, emit: Emit = lambda _: None, cancel: Event | None = None
) -> Tokens:
    """Load only a model's tokenizer; its weights are neither read nor downloaded, and need not exist.

    Args:
        settings: The model.
        emit: Receives the progress.
        cancel: Stops a download.

    Returns:
        The same tokenizer as from `load`. Its vocabulary size is that in config.json, or unlimited if that has none.

    Raises:
        LoadError: The tokenizer can't be loaded.
        Cancelled: `cancel` was set.
    """
    check(settings)
    path = resolve(settings.model, emit, cancel or Event(), weights=False)
    emit(Loading("tokenizer", 0, 0, path.name))
    try:
        config = utils.load_config(path)
        rows = model_facts.first_of(config, "vocab_size")
    except Exception as error:  # its fields may have any value
        raise explain(error, path) from error
    return _tokens(path, config, settings, rows if type(rows) is int else sys.maxsize)


# ---- reading the files, with errors converted -------------------------------------------------


@contextmanager
def _without_brackets(path: Path) -> Iterator[Path]:
    """Yield a path of a directory that mlx_lm can search, since mlx_lm treats [ ] * and ? in a name as a pattern."""
    if glob.escape(str(path)) == str(path):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="inspector-") as folder:
        link = Path(folder, "model")
        link.symlink_to(path.absolute())
        yield link


def _check_weights(model: Any, path: Path) -> None:
    """Check that no weights are integers, since mlx_lm would compute with them."""
    for name, module in model.named_modules():
        weight = module.get("weight") if isinstance(module, PLAIN_LAYERS) else None
        if weight is not None and not mx.issubdtype(weight.dtype, mx.floating):
            kind = str(weight.dtype).removeprefix("mlx.core.")
            raise directory.format_error(path) or LoadError(
                f"The weights in {path} don't fit its config.json ({name}.weight holds numbers of type {kind}).",
                "Download both again.",
            )


def _adapt(model: Any, path: Path) -> None:
    directory.check_adapter(path)
    try:
        utils.load_adapters(model, str(path))
    except Exception as error:
        message = f"The adapter in {path} doesn't fit this model ({first_line(error)})."
        hint = "Check its base model."
        if isinstance(error, AttributeError | KeyError | TypeError):
            lacks = f"{path}/adapter_config.json lacks something that mlx_lm needs"
            message = f"{lacks}, or has it in a different form ({first_line(error)})."
            hint = "Give the directory that mlx_lm.lora wrote."
        raise LoadError(message, hint) from error
    model.eval()


def _tokens(path: Path, config: dict[str, Any], settings: LoadSettings, vocabulary: int) -> Tokens:
    eos = config.get("eos_token_id")
    if not all(type(token) is int for token in (eos if isinstance(eos, list) else [eos or 0])):
        message = f"The eos_token_id in {path}/config.json or generation_config.json is not a token id."
        raise LoadError(message, "Download them again.")
    try:
        tokens = Tokens(_tokenizer(path, config, settings), vocabulary)
        for text in settings.extra_eos_token:
            tokens.add_eos(text)
        _ = tokens.spared  # encodes a text for the first time
        return tokens
    except LoadError:
        raise
    except Exception as error:  # its files may contain anything
        raise bad_tokenizer(path, error) from error


def _tokenizer(path: Path, config: dict[str, Any], settings: LoadSettings) -> Any:
    """Load a model's tokenizer, for `Tokens`.

    Raises:
        LoadError: The tokenizer's class turns tokenizer.json into another kind of tokenizer, which can't encode every
            text.
        Exception: The files may make transformers raise any exception.
    """
    if (plain := plain_tokenizer(path, config)) is not None:
        return plain
    complete()
    extra = {"trust_remote_code": settings.trust_remote_code}
    tokenizer = utils.load_tokenizer(path, extra, eos_token_ids=config.get("eos_token_id"))
    try:
        tokenizer.encode("Ab 1 é 世 🙂", add_special_tokens=False)
    except Exception as error:
        own = directory.read_object(path / "tokenizer.json", directory.VALUES_OF_VOCABULARY).get("model")
        made = type(getattr(getattr(tokenizer, "backend_tokenizer", None), "model", None)).__name__
        if isinstance(own, dict) and own.get("type", made) != made:
            named = directory.read_object(path / "tokenizer_config.json").get("tokenizer_class")
            raise LoadError(
                f"The tokenizer in {path} is {own['type']}, and its tokenizer_class, {named}, makes a {made} of it "
                f"that can't encode every text ({first_line(error)}).",
                f"{_SET_CLASS}.",
            ) from error
    return tokenizer


def read_weights(model: Any, emit: Emit, cancel: Event) -> str:
    """Evaluate the lazy weights in groups of tensors, to report progress and to allow a cancel.

    Returns:
        A sentence on why computing with them will be slow, which the progress records contain, too; empty if there is
        enough memory.

    Raises:
        LoadError: The weights are damaged.
        Cancelled: `cancel` was set.
    """
    parameters = model_facts.arrays_of(model)
    warning = model_facts.warning_of(sum(array.nbytes for _, array in parameters))
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
            message = f"The weights are damaged at or before {name} ({error})."
            raise LoadError(message, "Download them again.") from error
        emit(Loading("weights", done, len(parameters), name, warning))
        group, size = [], 0
    return warning


# ---- the place of a model's files -------------------------------------------------------------------
# The bundled model, a directory, or a hub id, distinguished before anything is loaded. A mistyped path must not be
# reported as a bad hub id, nor a GGUF file as a bad directory. So all cases are decided here, and mlx_lm only receives
# a directory with the files that it needs.


def resolve(spec: str, emit: Emit, cancel: Event, weights: bool = True) -> Path:
    """Find the directory of a model, downloading it if it is a hub id that isn't cached.

    Args:
        spec: `pocket`, a path, or a hub id such as `mlx-community/Qwen3-0.6B-4bit`.
        emit: Receives the progress of a download.
        cancel: Stops a download.
        weights: True if the weights are needed.

    Returns:
        A directory with config.json, a tokenizer and, if needed, weights.

    Raises:
        LoadError: There is no such model, or it can't be read.
        Cancelled: `cancel` was set.
    """
    if spec == "pocket":
        return pocket.directory()
    if not spec.strip():
        raise LoadError("The model's name is empty.", "Give a directory, a hub id, or pocket.")
    path = directory.named(spec) or _download(spec, emit, cancel, weights)
    directory.check(path, weights)
    return path


def _download(spec: str, emit: Emit, cancel: Event, weights: bool) -> Path:
    """Download the model's current version; if that fails, return the version in the cache."""
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", spec, re.ASCII):
        raise LoadError(f"{spec} is neither a directory nor a hub id.", "A hub id has the form owner/name.")
    emit(Loading("download", 0, 0, spec))
    try:
        return download(
            spec, lambda now: emit(Loading("download", now.done, now.total, spec)), cancel.is_set, weights
        )
    except LoadError as error:
        if (path := cached(spec)) is not None:
            return path
        raise LoadError(f"There is no directory {spec}. {error.message}", error.hint) from error
