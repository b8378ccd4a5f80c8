"""Small files of the user: replaced as a whole, and set aside where they can't be read."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from engine.errors import EngineError


def write(path: Path, text: str) -> None:
    """Replace a file as a whole: whoever reads it finds the old one or the new one.

    Args:
        path: Where; directories on the way are made.
        text: All of it; what is no Unicode is written as escapes.

    Raises:
        EngineError: It can't be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise _unwritable(path, error) from error


def set_aside(path: Path) -> str:
    """Rename a file that can't be read, so that nothing of it is lost.

    Returns:
        A sentence for the user, with a space before it.

    Raises:
        EngineError: It can't be renamed.
    """
    number = 1
    while (aside := path.with_suffix(f".damaged-{number}.json")).exists():
        number += 1
    try:
        path.replace(aside)
    except OSError as error:
        raise _unwritable(path, error) from error
    return f" The file that could not be read is now {aside.name}."


def _unwritable(path: Path, error: OSError) -> EngineError:
    return EngineError(
        f"{path} can't be written: {error.strerror or error}.", "Check the directory's permissions."
    )


def _replace(path: Path, data: bytes) -> None:
    descriptor, name = tempfile.mkstemp(prefix=path.name, dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
