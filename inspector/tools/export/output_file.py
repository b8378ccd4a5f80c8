"""Where a document goes: a file that appears whole or not at all, and never in the place of another unasked."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from engine.errors import EngineError


def free(path: Path, force: bool) -> Path:
    """Check that a document may be written there, before the work of making it.

    Args:
        path: Where; `~` is the user's home directory.
        force: Whether a file that is there may be replaced.

    Returns:
        The path to write to.

    Raises:
        EngineError: A file is there, or no file can be.
    """
    path = path.expanduser()
    if path.is_dir():
        raise EngineError(f"{path} is a directory.", "Give the name of a file.")
    if not path.parent.is_dir():
        raise EngineError(f"There is no directory {path.parent}.", "Make it, or choose another.")
    if path.exists() and not force:
        raise EngineError(f"{path} is there already.", "Choose another name, or replace it with --force.")
    return path


def write(path: Path, text: str, force: bool) -> int:
    """Write a document; what was there before stays until it is complete.

    Args:
        path: As `free` takes it.
        text: All of it, as UTF-8.
        force: As `free` takes it.

    Returns:
        Bytes written.

    Raises:
        EngineError: It can't be written there.
    """
    target = free(path, force)
    if force:
        target = Path(os.path.realpath(target))  # a link stays a link
    aside, raw = target.with_name(f".{target.name[:100]}.{secrets.token_hex(4)}.part"), text.encode()
    try:
        _put(aside, raw)
        os.replace(aside, free(target, force))  # a file that came meanwhile stays, too
    except BaseException as error:
        aside.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise EngineError(
                f"{path} can't be written: {error.strerror or error}.",
                "Choose another place, or make room there.",
            ) from error
        raise
    return len(raw)


def _put(path: Path, raw: bytes) -> None:
    # not `tempfile`: a document has the permissions that the user's documents have
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
        file.write(raw)
        file.flush()
        os.fsync(file.fileno())
