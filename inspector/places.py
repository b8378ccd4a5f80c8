"""Directories of the user's files, as usual on the platform."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

_NAME = "mlx-inspector"


def config() -> Path:
    """Directory of presets, breakpoints, keys and preferences."""
    from platformdirs import user_config_path  # not needed for --help

    return _known(partial(user_config_path, _NAME, appauthor=False))


def state() -> Path:
    """Directory of sessions, and except on macOS of the log."""
    from platformdirs import user_state_path

    return _known(partial(user_state_path, _NAME, appauthor=False))


def log() -> Path:
    """Path of the crash log."""
    if sys.platform == "darwin":
        from platformdirs.macos import MacOS

        return _known(lambda: MacOS().user_log_path / f"{_NAME}.log")
    return state() / "inspector.log"


def _known(find: Callable[[], Path]) -> Path:
    """A user directory; without a home directory a path that can't exist, so that writing there fails.

    The alternatives would be a directory named `~` wherever the program is started, or one that others can write to.
    """
    try:
        return find()
    except RuntimeError:
        return Path(os.devnull) / _NAME
