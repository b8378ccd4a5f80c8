"""Directories of the user's own files, in the platform's places for them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

_NAME = "mlx-inspector"


def config() -> Path:
    """Directory of presets and breakpoints."""
    from platformdirs import user_config_path  # not needed for --help

    return _known(partial(user_config_path, _NAME, appauthor=False))


def state() -> Path:
    """Directory of the sessions, and on Linux of the log."""
    from platformdirs import user_state_path

    return _known(partial(user_state_path, _NAME, appauthor=False))


def log() -> Path:
    """The log of faults."""
    if sys.platform == "darwin":
        from platformdirs.macos import MacOS

        return _known(lambda: MacOS().user_log_path / f"{_NAME}.log")
    return state() / "inspector.log"


def _known(find: Callable[[], Path]) -> Path:
    """A place of the user; without a home directory one that can't exist, so that writing there is an error.

    The alternatives are a directory named `~` wherever the program is started, and one that others can write to.
    """
    try:
        return find()
    except RuntimeError:
        return Path(os.devnull) / _NAME
