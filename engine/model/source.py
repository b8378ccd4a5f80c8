"""The place of a model's files: the bundled one, a directory, or a hub id, distinguished before anything is loaded.

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
    path = typed(spec)
    if not os.path.lexists(path):
        looks = spec.startswith((".", "/", "~")) or spec.endswith(("/", ".gguf", ".safetensors"))
        if looks or spec.count("/") > 1 or ("/" in spec and path.parent.is_dir()):
            raise LoadError(f"No such directory: {spec}.", "Check the path's spelling.")
        path = _download(spec, emit, cancel, weights)
    directory.check(path, weights)
    return path


def _download(spec: str, emit: Emit, cancel: Event, weights: bool) -> Path:
    from huggingface_hub import errors, snapshot_download
    from mlx_lm.utils import DEFAULT_ALLOW_PATTERNS
    from tqdm import tqdm

    class Reporter(tqdm):
        """Reports bytes instead of drawing."""

        def __init__(self, *args: Any, **keywords: Any) -> None:
            super().__init__(*args, **{**keywords, "disable": True})
            self.in_bytes = keywords.get("unit") == "B"

        def update(self, n: float | None = 1) -> None:
            if cancel.is_set():
                raise Cancelled
            self.n += n or 0
            if self.in_bytes and self.n:
                emit(Loading("download", int(self.n), int(self.total or 0), spec))

    emit(Loading("download", 0, 0, spec))
    patterns = [name for name in DEFAULT_ALLOW_PATTERNS if weights or not name.endswith(".safetensors")]
    try:
        return Path(snapshot_download(spec, allow_patterns=patterns, tqdm_class=Reporter))
    except (errors.GatedRepoError, errors.LocalTokenNotFoundError) as error:
        message, hint = f"The hub asks for a login to read {spec}.", "Run `hf auth login`, then try again."
        raise LoadError(message, hint) from error
    except errors.RepositoryNotFoundError as error:
        message = f"The hub has no model {spec}, and there is no such directory."
        raise LoadError(message, "Check the name.") from error
    except errors.HFValidationError as error:
        message = f"{spec} is neither a directory nor a hub id."
        raise LoadError(message, "A hub id has the form owner/name.") from error
    except OSError as error:  # no network, no cache, a full disk
        message = (
            f"There is no directory {spec}, and it is not in the hub's cache and can't be downloaded now"
            f" ({first_line(error, 160)})."
        )
        raise LoadError(message, "Check the spelling and the network.") from error
