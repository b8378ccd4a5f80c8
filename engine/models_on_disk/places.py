"""Where models are: the hub's cache, LM Studio's folders, given directories, those that were used last.

A directory is read as far as its names, and no deeper than models are put: a link that leads back into it ends nothing.
"""

from __future__ import annotations

import filecmp
import itertools
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from engine import pocket
from engine.files import read_regular
from engine.models_on_disk.facts import DiskModel, Source
from engine.models_on_disk.reading import FILES, read_model

VARIABLE = "INSPECTOR_MODELS"
"""Environment variable: directories of models, separated as in PATH."""
DEPTH = 2
"""Directories below a given one in which models are looked for: publisher/model."""
_REVISION = re.compile(r"[\w.-]{1,100}", re.ASCII)
_REPOSITORY = "models--"


def all_places(
    directories: Sequence[str] = (), recent: Sequence[str] = (), environ: Mapping[str, str] = os.environ
) -> Iterator[DiskModel]:
    """Every model, with its name and its path alone; each once, where two ways lead to it.

    Args:
        directories: Those that a person gave; where there are any, nothing else is looked at.
        recent: Paths of models that were used last.
        environ: The environment.
    """
    seen: set[str] = set()
    for model in _places(directories, recent, environ):
        real = str(model.path) if model.problem else os.path.realpath(model.path)
        if real not in seen:
            seen.add(real)
            yield model


def _places(
    directories: Sequence[str], recent: Sequence[str], environ: Mapping[str, str]
) -> Iterator[DiskModel]:
    if directories:
        for given in directories:
            yield from _below(_typed(given, environ), "given", DEPTH, given=True)
        return
    yield DiskModel("pocket", pocket.directory(), "bundled")
    for path in recent:
        if os.path.isdir(path) and not _is_bundled(Path(path)):
            yield _at(Path(path), "recent")
    for given in filter(None, environ.get(VARIABLE, "").split(os.pathsep)):
        yield from _below(_typed(given, environ), "given", DEPTH, given=True)
    yield from _below(hub_cache(environ), "hub", 1)
    home = _home(environ)
    for folder in (home / ".lmstudio/models", home / ".cache/lm-studio/models"):
        yield from _below(folder, "LM Studio", DEPTH)


def _is_bundled(path: Path) -> bool:
    """True if a directory has the bundled model's weights: that of another installation of the program."""
    name = "model.safetensors"
    try:
        return filecmp.cmp(path / name, pocket.directory() / name, shallow=False)
    except OSError:
        return False


def hub_cache(environ: Mapping[str, str]) -> Path:
    """The hub's cache, as huggingface_hub finds it."""
    if place := environ.get("HF_HUB_CACHE") or environ.get("HUGGINGFACE_HUB_CACHE"):
        return _typed(place, environ)
    if place := environ.get("HF_HOME"):
        return _typed(place, environ) / "hub"
    cache = environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else _home(environ) / ".cache") / "huggingface" / "hub"


def _typed(text: str, environ: Mapping[str, str]) -> Path:
    return _home(environ) / text[2:] if text.startswith("~/") else Path(text)


def _home(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("HOME") or os.path.expanduser("~"))


def _below(path: Path, source: Source, depth: int, given: bool = False) -> Iterator[DiskModel]:
    """The models in a directory and the directories in it.

    Args:
        path: The directory.
        source: How it is found.
        depth: How far down.
        given: Whether somebody named it, so that there being nothing is worth a line.
    """
    try:
        with os.scandir(path) as entries:
            found = sorted(itertools.islice(entries, FILES), key=lambda entry: entry.name)
    except (OSError, ValueError) as error:
        if given or not isinstance(error, FileNotFoundError | NotADirectoryError):
            why = getattr(error, "strerror", None) or str(error)
            yield replace(
                _at(path, source), problem=f"It can't be read: {why}. Check its name and permissions."
            )
        return
    if path.name.startswith(_REPOSITORY):
        yield _repository(path, source)
        return
    if any(_is_of_model(entry.name) for entry in found):
        yield _at(path, source)
        return
    inner = [Path(entry.path) for entry in found if entry.name[0] != "." and os.path.isdir(entry.path)]
    below = itertools.chain.from_iterable(_below(each, source, depth - 1) for each in inner if depth)
    first = next(below, None)
    if first is not None:
        yield first
        yield from below
    elif any(entry.name.endswith((".gguf", ".safetensors")) for entry in found):
        yield _at(path, source)  # of another program: it is listed with why it can't be loaded
    elif given:
        yield replace(_at(path, source), problem="There is no model in it. Give a directory that holds some.")


def _is_of_model(name: str) -> bool:
    return name == "config.json" or (name.startswith("model") and name.endswith(".safetensors"))


def _at(path: Path, source: Source) -> DiskModel:
    """A model in a directory, named by its last two parts, or as the hub names the snapshot that it is."""
    repository = path.parent.parent.name
    if path.parent.name == "snapshots" and repository.startswith(_REPOSITORY):
        return DiskModel(_hub_id(repository), path, source, _hub_id(repository))
    name = path.name if source in ("given", "recent") else "/".join(path.parts[-2:])
    return DiskModel(name or str(path), path, source)


# ---- the hub's cache --------------------------------------------------------------------------


def _repository(path: Path, source: Source) -> DiskModel:
    """A repository of the hub's cache: the snapshot that `main` means, else the latest."""
    model = DiskModel(_hub_id(path.name), path, source, _hub_id(path.name))
    unfinished = _unfinished(path)
    if (snapshot := _snapshot(path)) is None:
        return replace(model, problem=f"No file of it is complete{unfinished}. Download it.", incomplete=True)
    notes = (f"A download of it was not finished{unfinished}.",) if unfinished else ()
    return replace(model, path=snapshot, notes=notes)


def _hub_id(folder: str) -> str:
    return folder.removeprefix(_REPOSITORY).replace("--", "/")


def _snapshot(path: Path) -> Path | None:
    try:
        revision = read_regular(path / "refs" / "main", 1024).decode(errors="replace").strip()
        if _REVISION.fullmatch(revision) and (path / "snapshots" / revision).is_dir():
            return path / "snapshots" / revision
    except OSError:
        pass
    try:
        with os.scandir(path / "snapshots") as entries:
            found = [
                (entry.stat().st_mtime, entry.path)
                for entry in itertools.islice(entries, 100)
                if entry.is_dir()
            ]
    except OSError:
        return None
    return Path(max(found)[1]) if found else None


def _unfinished(path: Path) -> str:
    """How many of its files are there in part, empty where none is."""
    try:
        with os.scandir(path / "blobs") as entries:
            count = sum(entry.name.endswith(".incomplete") for entry in itertools.islice(entries, FILES))
    except OSError:
        return ""
    return f" ({count} {'file' if count == 1 else 'files'} in part)" if count else ""


# ---- the list ----------------------------------------------------------------------------------

MOST = 5000
"""Models of a list at most."""


def listed(
    directories: Sequence[str] = (), recent: Sequence[str] = (), stopped: Callable[[], bool] = lambda: False
) -> Iterator[DiskModel]:
    """Every model: the bundled one, those used last, those of given directories, the hub's, LM Studio's.

    Args:
        directories: Those that a person gave; where there are any, nothing else is looked at.
        recent: Paths of models that were used last.
        stopped: Polled before each model: whether to end here.

    Yields:
        Each with its facts, as soon as it was read.
    """
    for place, _ in zip(all_places(directories, recent), range(MOST), strict=False):
        if stopped():
            return
        yield place if place.problem else read_model(place)
