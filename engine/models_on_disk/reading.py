"""Reads what is known of a model in a directory: regular files alone, and of weights no more than their headers."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from engine.errors import LoadError
from engine.files import MIB, read_regular
from engine.model import directory as model_directory
from engine.model.directory import (
    BITS,
    IN_MLX_FORMAT,
    QUANTIZATION,
    TOKENIZER_FILES,
    Damaged,
    TensorEntry,
    check_sizes,
    read_entries,
    read_object,
    unreadable_format,
)
from engine.models_on_disk.facts import DiskModel, kept_in, kv_size, stored_weights

# ---- the families that mlx_lm knows, read off its sources: importing it takes a second, and MLX with it ----

_NAME = re.compile(r"\w[\w.-]{0,99}", re.ASCII)
_MODEL = re.compile(r"^class Model\b|^from \.\w+ import .*\bModel\b", re.MULTILINE)
_IMPORTED = re.compile(r"^from \. import (\w+)|^from \.(\w+) import", re.MULTILINE)
_SHARED = frozenset({"activations", "base", "cache", "pipeline", "rope_utils", "ssm", "switch_layers"})
"""What families share: it says nothing of one of them."""


@cache
def _package() -> Path | None:
    """The directory of mlx_lm, None where it isn't installed."""
    found = importlib.util.find_spec("mlx_lm")
    places = found.submodule_search_locations if found else None
    return Path(next(iter(places))) if places else None


@cache
def _remapped() -> dict[str, str]:
    """Families that mlx_lm loads as another one, `MODEL_REMAPPING` of its utils; empty where it can't be read."""
    try:
        package = _package()
        tree = ast.parse(read_regular(package / "utils.py", MIB)) if package else ast.Module([], [])
        for node in tree.body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "MODEL_REMAPPING":
                return dict(ast.literal_eval(node.value))
    except (OSError, ValueError, SyntaxError, TypeError):
        pass
    return {}


@cache
def family_source(family: str) -> str | None:
    """The source of a family in mlx_lm, with that of the families it is built of.

    Args:
        family: `model_type` of a config.

    Returns:
        None where mlx_lm has no such family, or isn't installed.
    """
    name, package = _remapped().get(family, family), _package()
    if package is None or not _NAME.fullmatch(name):
        return None
    text = _text(package / "models" / f"{name}.py")
    if not _MODEL.search(text):
        return None
    parts = {one or other for one, other in _IMPORTED.findall(text)} - _SHARED
    return "\n".join([text, *(_text(package / "models" / f"{part}.py") for part in sorted(parts))])


def known_family(family: str) -> bool | None:
    """True if mlx_lm has a family; None where it isn't installed."""
    return family_source(family) is not None if _package() else None


def _text(path: Path) -> str:
    try:
        return read_regular(path, MIB).decode(errors="replace")
    except OSError:
        return ""


# ---- models ------------------------------------------------------------------------------------

FILES = 10_000
"""Entries of a directory that are looked at, at most."""
VALUES = 100_000
"""Values of a config at most, an object counted as four; 7,000 were seen in a config that quantizes modules each its
own way."""
HEADERS = 64 * MIB
"""Bytes of the headers of a model's files together at most: 15 were seen, in 91,000 tensors of 160 files."""
INDEX = "model.safetensors.index.json"
_PART = re.compile(r"model.*-(\d{1,6})-of-(\d{1,6})\.safetensors")
_WINDOWS = ("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length")
_AGAIN = "Download it again."


class _Files(Struct, frozen=True):
    """The names in a model's directory, and its weights' files among them."""

    path: Path
    names: frozenset[str]
    weights: tuple[str, ...]


def read_model(model: DiskModel) -> DiskModel:
    """All that is known of a model.

    Args:
        model: Where it is, and its name.

    Returns:
        It with its facts, or with why it can't be read. Never raises for what a file holds.
    """
    try:
        files = _files(model.path)
        if "config.json" not in files.names:
            return replace(
                model, problem=_no_config(files), size=_size(files), incomplete=not _foreign(files)
            )
        return _of_config(model, files, read_object(model.path / "config.json", VALUES))
    except LoadError as error:
        return replace(model, problem=problem_words(error, model.path))
    except OSError as error:
        return replace(model, problem=f"It can't be read: {error.strerror or error}. Check its permissions.")


def problem_words(error: LoadError, path: Path) -> str:
    """A fault of a model's file as a line about it: the path, which stands beside it, is left out."""
    message = f"{error.message} {error.hint}".rstrip()
    return message.replace(f"{path}/", "").replace(f"weights in {path}", "weights").replace(f"{path} ", "It ")


def _files(path: Path) -> _Files:
    with os.scandir(path) as entries:
        names = frozenset(entry.name for entry in islice(entries, FILES))
    weights = sorted(n for n in names if n.startswith("model") and n.endswith(".safetensors"))
    return _Files(path, names, tuple(weights))


def _of_config(model: DiskModel, files: _Files, config: dict[str, Any]) -> DiskModel:
    family = config.get("model_type")
    if not isinstance(family, str) or not family:
        return replace(
            model,
            size=_size(files),
            problem="Its config.json names no model_type: it is not a language model.",
        )
    text = config.get("text_config")
    parts = (config, text) if isinstance(text, dict) else (config,)
    model = replace(
        model,
        family=family,
        layers=_first(parts, "num_hidden_layers", "n_layer", "n_layers"),
        context=_first(parts, *_WINDOWS),
        size=_size(files),
        known=known_family(family),
        notes=(*model.notes, *_notes(config)),
    )
    if not files.weights:
        return replace(model, problem=_no_weights(files), incomplete=not _foreign(files))
    return _of_weights(model, files, config, parts)


def _of_weights(
    model: DiskModel, files: _Files, config: dict[str, Any], parts: Sequence[Mapping[str, Any]]
) -> DiskModel:
    try:
        entries = _entries(files)
    except LoadError as error:
        gone = isinstance(error.__cause__, FileNotFoundError)
        return replace(model, problem=problem_words(error, model.path), incomplete=gone)
    missing = _missing(files)
    try:
        if not missing:
            check_sizes(model.path, config, {name: entry.shape for name, entry in entries.items()})
    except LoadError as error:
        return replace(model, problem=problem_words(error, model.path), layers=None, context=None)
    inner = {**config, **parts[-1]}
    weights = stored_weights(entries, inner)
    types = (model.family, str(inner.get("model_type", "")))
    source = "\n".join(filter(None, map(family_source, dict.fromkeys(types))))
    kv = kv_size(entries, inner, source, kept_in(weights.dtype))
    problem = missing or _unknown(model, config) or _unreadable(files, config, entries, source)
    return replace(model, weights=weights, kv=kv, problem=problem, incomplete=bool(missing))


def _entries(files: _Files) -> dict[str, TensorEntry]:
    entries: dict[str, TensorEntry] = {}
    left = HEADERS
    for name in files.weights:
        try:
            found = read_entries(files.path / name, left)
        except FileNotFoundError as error:
            raise LoadError(f"{name} is a link to a file that doesn't exist.", _AGAIN) from error
        except OSError as error:
            raise model_directory.unreadable(files.path / name, error) from error
        except Damaged as error:
            raise LoadError(f"Its weights are damaged or cut short ({error}).", _AGAIN) from error
        if strange := next((each for each, entry in found.items() if entry.dtype not in BITS), None):
            raise LoadError(f"Its tensor {strange[:100]!r} is of a type that is not known.", _AGAIN)
        left -= sum(len(each) + 60 for each in found)
        entries |= found
    return entries


def _size(files: _Files) -> int:
    total = 0
    for name in files.weights:
        try:
            total += os.stat(files.path / name).st_size
        except OSError:  # what is wrong with it is said where its header is read
            continue
    return total


def _first(parts: Iterable[Mapping[str, Any]], *names: str) -> int | None:
    """The first of some fields that is a number, in the config or in the text model's part of it."""
    found = (part.get(name) for part in parts for name in names)
    return next((n for n in found if type(n) is int and 0 < n <= model_directory.WIDEST), None)


# ---- what is wrong ------------------------------------------------------------------------------


def _foreign(files: _Files) -> str:
    """Why weights that are there are none that are read here; empty where there are no such."""
    if any(name.endswith(".gguf") for name in files.names):
        return "It holds GGUF weights, which this program can't read. Use the model's safetensors."
    if any(name.endswith((".bin", ".pth", ".pt")) for name in files.names):
        return "Its weights are PyTorch's. Convert it with mlx_lm.convert."
    return ""


def _no_config(files: _Files) -> str:
    return _foreign(files) or "It has no config.json. Download it."


def _no_weights(files: _Files) -> str:
    return _foreign(files) or f"It has no weights ({model_directory.WEIGHTS}). Download them."


def _missing(files: _Files) -> str:
    missing = sorted(_wanted(files) - set(files.weights))
    if missing:
        return f"{len(missing)} of its {len(missing) + len(files.weights)} weight files are missing. Download them."
    if not any(name in files.names for name in TOKENIZER_FILES):
        return "It has no tokenizer (tokenizer.json). Copy it from the model's original directory."
    return ""


def _wanted(files: _Files) -> set[str]:
    """The weights' files that there should be, as the index has them, else as their names count them."""
    if INDEX in files.names:
        names = read_object(files.path / INDEX, 4 * VALUES).get("weight_map")
        if isinstance(names, dict):
            return {name for name in names.values() if isinstance(name, str)}
    for name in files.weights:
        if (match := _PART.fullmatch(name)) and int(match[2]) <= FILES:
            begin = name[: match.start(1)]
            width = len(match[1])
            return {f"{begin}{n:0{width}}-of-{match[2]}.safetensors" for n in range(1, int(match[2]) + 1)}
    return set()


def _unknown(model: DiskModel, config: Mapping[str, Any]) -> str:
    if model.known is False and not config.get("model_file"):
        return f"mlx_lm has no family {model.family[:100]}. A later mlx_lm may have it."
    return ""


def _unreadable(
    files: _Files, config: dict[str, Any], entries: Mapping[str, TensorEntry], source: str
) -> str:
    if "quantization_config" not in config and QUANTIZATION in files.names:
        config = {**config, "quantization_config": read_object(files.path / QUANTIZATION, VALUES)}
    form = unreadable_format(config, entries, dequantizes="scale_inv" in source)
    return f"mlx_lm can't load its weights: they are in {form}. {IN_MLX_FORMAT}" if form else ""


def _notes(config: Mapping[str, Any]) -> Iterable[str]:
    if config.get("model_file"):
        yield "It comes with code of its own, which runs only with --trust-remote-code."
    if isinstance(config.get("text_config"), dict):
        yield "Its parts for anything but text are counted, but not loaded."
