"""The places of models: the hub's cache, LM Studio's folders, given directories, those that were used last.

A directory is read as far as its names, and no deeper than models are put: a link that leads back into it ends nothing.
"""

from __future__ import annotations

import filecmp
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from engine import pocket
from engine.files import read_regular
from engine.models_on_disk.facts import FILES, DiskModel, Source, read_model

VARIABLE = "INSPECTOR_MODELS"
"""Environment variable: directories of models, separated as in PATH."""
DEPTH = 2
"""Directories below a given one in which models are looked for: publisher/model."""
MOST = 5000
"""Models of a list at most."""
_REPOSITORY = "models--"


def listed(
    directories: Sequence[str] = (), recent: Sequence[str] = (), stopped: Callable[[], bool] = lambda: False
) -> Iterator[DiskModel]:
    """Read every model: the bundled one, those used last, those of given directories, the hub's, LM Studio's.

    Args:
        directories: Those that the user gave; if there are any, nothing else is looked at.
        recent: Paths of models that were used last.
        stopped: Polled before each model: whether to end here.

    Yields:
        Each with its facts, as soon as it was read.
    """
    for place in itertools.islice(all_places(directories, recent), MOST):
        if stopped():
            return
        yield place if place.problem else read_model(place)


def all_places(directories: Sequence[str] = (), recent: Sequence[str] = ()) -> Iterator[DiskModel]:
    """Find every model, with its name and its path alone; each once, if two ways lead to it.

    Args:
        directories: Those that the user gave; if there are any, nothing else is looked at.
        recent: Paths of models that were used last.
    """
    seen: set[str] = set()
    for model in _places(directories, recent):
        real = str(model.path) if model.problem else os.path.realpath(model.path)
        if real not in seen:
            seen.add(real)
            yield model


def _places(directories: Sequence[str], recent: Sequence[str]) -> Iterator[DiskModel]:
    given = directories or list(filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)))
    if not directories:
        yield DiskModel("pocket", pocket.directory(), "bundled")
        for path in map(Path, recent):
            if path.is_dir() and not _is_bundled(path):
                yield _at(path, "recent")
    for name in given:
        yield from _below(_path(name), "given", DEPTH)
    if not directories:
        yield from _below(hub_cache(), "hub", 1)
        for folder in ("~/.lmstudio/models", "~/.cache/lm-studio/models"):
            yield from _below(_path(folder), "LM Studio", DEPTH)


def _is_bundled(path: Path) -> bool:
    """True if a directory has the bundled model's weights: that of another installation of the program."""
    name = "model.safetensors"
    try:
        return filecmp.cmp(path / name, pocket.directory() / name, shallow=False)
    except OSError:
        return False


def _path(text: str) -> Path:
    return Path(os.path.expanduser(text))  # unlike Path's own it leaves the name of an unknown user


def _below(path: Path, source: Source, depth: int) -> Iterator[DiskModel]:
    """Find the models in a directory and the directories in it.

    Args:
        path: The directory.
        source: How it is found; if it was given, it is worth a line that there is no model.
        depth: How far down.
    """
    given = source == "given" and depth == DEPTH
    try:
        with os.scandir(path) as entries:
            found = sorted(itertools.islice(entries, FILES), key=lambda entry: entry.name)
    except (OSError, ValueError) as error:
        if given or not isinstance(error, FileNotFoundError | NotADirectoryError):
            why = getattr(error, "strerror", None) or str(error)
            problem = f"It can't be read: {why}. Check its name and permissions."
            yield replace(_at(path, source), problem=problem)
        return
    names = [entry.name for entry in found]
    if path.name.startswith(_REPOSITORY):
        yield _repository(path, source)
    elif any(n == "config.json" or (n.startswith("model") and n.endswith(".safetensors")) for n in names):
        yield _at(path, source)
    else:
        inner = [Path(entry.path) for entry in found if entry.name[0] != "." and os.path.isdir(entry.path)]
        below = itertools.chain.from_iterable(_below(each, source, depth - 1) for each in inner if depth)
        if (first := next(below, None)) is not None:
            yield first
            yield from below
        elif any(name.endswith((".gguf", ".safetensors")) for name in names):
            yield _at(path, source)  # of another program: it is listed with why it can't be loaded
        elif given:
            problem = "There is no model in it. Give a directory that holds some."
            yield replace(_at(path, source), problem=problem)


def _at(path: Path, source: Source) -> DiskModel:
    """A model in a directory, named by its last two parts, or as the hub names the snapshot that it is."""
    repository = path.parent.parent.name
    if path.parent.name == "snapshots" and repository.startswith(_REPOSITORY):
        return DiskModel(_hub_id(repository), path, source, _hub_id(repository))
    name = path.name if source in ("given", "recent") else "/".join(path.parts[-2:])
    return DiskModel(name or str(path), path, source)


# ---- the hub's cache --------------------------------------------------------------------------


def hub_cache() -> Path:
    """The hub's cache, as huggingface_hub finds it."""
    environ = os.environ
    if place := environ.get("HF_HUB_CACHE") or environ.get("HUGGINGFACE_HUB_CACHE"):
        return _path(place)
    if place := environ.get("HF_HOME"):
        return _path(place) / "hub"
    return _path(environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface" / "hub"


def _repository(path: Path, source: Source) -> DiskModel:
    """A repository of the hub's cache: the snapshot that `main` means, else the latest."""
    model = DiskModel(_hub_id(path.name), path, source, _hub_id(path.name))
    parts = sum(name.endswith(".incomplete") for name in _names(path / "blobs"))
    unfinished = f" ({parts} {'file' if parts == 1 else 'files'} in part)" if parts else ""
    snapshots = [each for name in _names(path / "snapshots") if (each := path / "snapshots" / name).is_dir()]
    if not snapshots:
        return replace(model, problem=f"No file of it is complete{unfinished}. Download it.", incomplete=True)
    notes = (f"A download of it was not finished{unfinished}.",) if parts else ()
    try:
        revision = read_regular(path / "refs" / "main", 1024).decode(errors="replace").strip()
    except OSError:
        revision = ""
    newest = max(snapshots, key=lambda each: (each.name == revision, each.stat().st_mtime))
    return replace(model, path=newest, notes=notes)


def _names(path: Path) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return [entry.name for entry in itertools.islice(entries, FILES)]
    except OSError:
        return []


def _hub_id(folder: str) -> str:
    return folder.removeprefix(_REPOSITORY).replace("--", "/")
