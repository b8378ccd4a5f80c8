"""Where a model's files are: the bundled one, a directory, or a hub id, distinguished before anything is loaded.

A path with a typing error must not be reported as a bad hub id, nor a GGUF file as a bad directory: so this module
makes every guess, and mlx_lm only receives a directory that has what it needs.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

from engine import pocket
from engine.errors import Cancelled, LoadError, first_line
from engine.files import typed
from engine.model import directory
from engine.protocol import Loading

Emit = Callable[[Loading], None]


def resolve(spec: str, emit: Emit, cancel: Event, weights: bool = True) -> Path:
    """Find the directory of a model, downloading it where it is a hub id that isn't cached.

    Args:
        spec: `pocket`, a path, or a hub id such as `mlx-community/Qwen3-0.6B-4bit`.
        emit: Receives the progress of a download.
        cancel: Stops a download.
        weights: Whether its weights are needed.

    Returns:
        A directory with config.json, a tokenizer and, where they are needed, weights.

    Raises:
        LoadError: There is no such model, or it can't be read here.
        Cancelled: `cancel` was set.
    """
    if spec == "pocket":
        return pocket.directory()
    if not spec.strip():
        raise LoadError("The model's name is empty.", "Give a directory, a hub id, or pocket.")
    path = typed(spec)
    if not os.path.lexists(path):
        if _means_path(spec, path):
            raise LoadError(f"No such directory: {spec}.", "Check the path's spelling.")
        path = _download(spec, emit, cancel, weights)
    directory.check(path, weights)
    return path


def _means_path(spec: str, path: Path) -> bool:
    """True if a name that doesn't exist was meant as a path: it looks like one, or its parent exists."""
    looks = spec.startswith((".", "/", "~")) or spec.endswith(("/", ".gguf", ".safetensors"))
    return (
        looks
        or (os.sep != "/" and os.sep in spec)
        or spec.count("/") > 1
        or ("/" in spec and path.parent.is_dir())
    )


def _download(spec: str, emit: Emit, cancel: Event, weights: bool) -> Path:
    from huggingface_hub import errors, snapshot_download
    from mlx_lm.utils import DEFAULT_ALLOW_PATTERNS

    emit(Loading("download", 0, 0, spec))
    patterns = [name for name in DEFAULT_ALLOW_PATTERNS if weights or not name.endswith(".safetensors")]
    try:
        downloaded = snapshot_download(
            spec, allow_patterns=patterns, tqdm_class=_reporter(spec, emit, cancel)
        )
    except (errors.GatedRepoError, errors.LocalTokenNotFoundError) as error:
        raise LoadError(
            f"The hub asks for a login to read {spec}.", "Run `hf auth login`, then try again."
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise LoadError(
            f"The hub has no model {spec}, and there is no such directory.", "Check the name."
        ) from error
    except errors.HFValidationError as error:
        raise LoadError(
            f"{spec} is neither a directory nor a hub id.", "A hub id has the form owner/name."
        ) from error
    except OSError as error:  # no network, no cache, a full disk
        raise LoadError(
            f"There is no directory {spec}, and it is not in the hub's cache and can't be downloaded now"
            f" ({first_line(error, 160)}).",
            "Check the spelling and the network.",
        ) from error
    return Path(downloaded)


def _reporter(spec: str, emit: Emit, cancel: Event) -> type[Any]:
    """A progress-bar class for the hub's downloader that reports bytes instead of drawing."""
    from tqdm import tqdm

    class Reporter(tqdm):
        def __init__(self, *args: Any, **keywords: Any) -> None:
            self._in_bytes = keywords.get("unit") == "B"
            super().__init__(*args, **{**keywords, "file": open(os.devnull, "w"), "mininterval": 0.1})  # noqa: SIM115

        def update(self, n: float | None = 1) -> bool | None:
            if cancel.is_set():
                raise Cancelled
            done: bool | None = super().update(n)
            if self._in_bytes and self.n:
                emit(Loading("download", int(self.n), int(self.total or 0), spec))
            return done

        def close(self) -> None:
            super().close()
            if not self.fp.closed:
                self.fp.close()

    return Reporter
