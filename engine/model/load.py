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
"""Bytes of weights that are read together at least: after each group the engine waits for MLX and tells the screen."""
_LIMITS = {
    "only supports float32": "Load it with --dtype float32.",
    "only support float32": "Load it with --dtype float32.",
    "metal": "It needs an Apple GPU: run it on a Mac, or use another model.",
}
"""Hints by what a backend says that has no way to compute something. It says so in a RuntimeError, which no wrong
config.json leads to: shapes that don't fit are a ValueError."""


def explain(error: Exception, path: Path) -> LoadError:
    """Put an error of mlx_lm into words; the cases are those observed with broken files."""
    text = first_line(error)
    unknown = "Model type" in text or "has no attribute 'Model" in text
    if "custom module" in str(error):  # after the path, which may be long
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
        message = f"{lacks}, or has it in another form ({text})."
        hint = "Download it again; if it is whole, mlx_lm can't load this model."
    elif isinstance(error, ValueError):
        message = f"The weights in {path} don't fit its config.json, as mlx_lm reads it ({text})."
        hint = "Download both again; if they are whole, mlx_lm can't load this model."
    else:
        message = f"mlx_lm can't load the model in {path} ({text})."
        hint = "Download it again, or use another model."
    return LoadError(message, hint)


def cannot_run(error: Exception, path: Path, dtype: str) -> LoadError:
    """Say why a model that was built can't run: this machine, the type that it was to compute in, or its files.

    Args:
        error: The exception of the first forward pass.
        path: The model's folder.
        dtype: The setting.
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
    """The error for a tokenizer whose files can't be read, or config.json, which transformers reads with them."""
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
    """The requested settings, without those that this model can't have (listed in the facts' notes)."""
    done: set[Work] = field(default_factory=set)
    """Kinds of work that it has done since it was loaded, in any session."""
    make_kv: MakeKV = KV
    """Makes its caches."""
    tail: Tail | None = None
    """The model's end, if that can be run alone."""
    divided: bool = False
    """True if several processes compute it."""

    def runner(self) -> Runner:
        """A runner on it with its own empty caches."""
        return Runner(self.model, self.settings, self.done, self.make_kv)


class Prepared(Struct, frozen=True):
    """A whole model that is built, but for its weights' values."""

    path: Path
    model: Any
    config: dict[str, Any]
    dtype: str
    """The type that it computes in, of `engine.settings.DTYPES` without `auto`."""
    facts: ModelFacts
    """Facts that don't need the tokenizer and caches."""


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
        cancel: Stops the loading at its next file or group of tensors.
        quantization: Bits and group size to quantize plain weights with, as mlx_lm.convert would have before they were
            written; None to leave them as they are.

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
    beside = ThreadPoolExecutor(1, "fingerprint")  # 30 ms for a small model, on another core
    digest = beside.submit(model_facts.fingerprint, prepared.path, settings.adapter_path)
    beside.shutdown(wait=False)
    warning, tokens = read(prepared, settings, emit, cancel)
    loaded = finished(prepared, settings, tokens, started, warning=warning)
    return replace(loaded, facts=replace(loaded.facts, fingerprint=digest.result()))


def read(prepared: Prepared, settings: LoadSettings, emit: Emit, cancel: Event) -> tuple[str, Tokens]:
    """Read the weights and the tokenizer of a model.

    Returns:
        The reason why computing will be slow, empty if it won't, and the tokenizer.

    Raises:
        LoadError: They are damaged.
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
    """Find out what a model that was read can do.

    Args:
        prepared: The model.
        settings: The settings that it is loaded with.
        tokens: Its tokenizer.
        started: `time.perf_counter()` when its loading began.
        make_kv: Makes its caches; not `KV` itself for a model that several processes compute.
        warning: From `read_weights`.

    Raises:
        LoadError: The model can't run.
    """
    path, model, facts = prepared.path, prepared.model, prepared.facts
    try:
        settings, tail, probed = model_facts.probe_cache(model, settings, make_kv, facts)
    except RankError:
        raise
    except Exception as error:  # the first forward pass: a config that could be built may not run
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
    """Build a model as it will compute, with lazy weights: nothing of them is read yet.

    Args:
        settings: As for `load`, like the others.

    Raises:
        LoadError: It can't be loaded; the message says why, the hint what to do.
        Cancelled: `cancel` was set.
    """
    if mx.default_device() == mx.Device(mx.cpu):
        # On Linux a compiled function calls g++ at run time and loads what it built from a shared temporary
        # folder: seconds at the first step, and no gain after it.
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
    # Weights that are not wired may be paged out while the user thinks: Metal may wire as much memory as it recommends,
    # as long as the process lives, as in mlx_lm's server.
    maybe_set_recommended_wired_limit()
    # mlx_lm's layers drew first weights, and each draw is kept in the graph of the next key
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
    """Load a model's tokenizer alone: its weights are neither read nor downloaded, and need not be there.

    Args:
        settings: The model.
        emit: Receives the progress.
        cancel: Stops a download.

    Returns:
        The tokenizer, as `load` makes it. Its vocabulary is that of config.json, or without bound if that has none.

    Raises:
        LoadError: It can't be loaded; the message says why, the hint what to do.
        Cancelled: `cancel` was set.
    """
    check(settings)
    path = resolve(settings.model, emit, cancel or Event(), weights=False)
    emit(Loading("tokenizer", 0, 0, path.name))
    try:
        config = utils.load_config(path)
        rows = model_facts.first_of(config, "vocab_size")
    except Exception as error:  # its fields may be anything
        raise explain(error, path) from error
    return _tokens(path, config, settings, rows if type(rows) is int else sys.maxsize)


# ---- reading the files, with failures in words ------------------------------------------------


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
    """Refuse integers instead of weights, which mlx_lm would compute with."""
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
            message = f"{lacks}, or has it in another form ({first_line(error)})."
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
        _ = tokens.spared  # the first text that it encodes
        return tokens
    except LoadError:
        raise
    except Exception as error:  # its files may say anything
        raise bad_tokenizer(path, error) from error


def _tokenizer(path: Path, config: dict[str, Any], settings: LoadSettings) -> Any:
    """A model's tokenizer, for `Tokens`.

    Raises:
        LoadError: Its class makes of tokenizer.json a tokenizer of another kind, which can't encode every text.
        Exception: Its files may make transformers raise anything.
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
    """Evaluate the lazy weights in groups of tensors: as fast as at once, with progress, and it can be cancelled.

    Returns:
        A sentence on why computing with them will be slow, which is emitted before the first; empty if there is memory.

    Raises:
        LoadError: They are damaged.
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
# The bundled model, a directory, or a hub id, distinguished before anything is loaded. A path with a typing error must
# not be reported as a bad hub id, nor a GGUF file as a bad directory: so every guess is made here, and mlx_lm only
# receives a directory that has what it needs.


def resolve(spec: str, emit: Emit, cancel: Event, weights: bool = True) -> Path:
    """Find the directory of a model, downloading it if it is a hub id that isn't cached.

    Args:
        spec: `pocket`, a path, or a hub id such as `mlx-community/Qwen3-0.6B-4bit`.
        emit: Receives the progress of a download.
        cancel: Stops a download.
        weights: Whether its weights are needed.

    Returns:
        A directory with config.json, a tokenizer and, if they are needed, weights.

    Raises:
        LoadError: There is no such model, or it can't be read here.
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
    """The model as the hub has it now, or else as the cache has it."""
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
