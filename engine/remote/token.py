"""The secret that a client shows before an engine answers it: a file that its owner alone can read."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from engine.errors import PathError
from engine.files import PRIVATE, replacing, shorter, told

_BYTES = 32
_LONGEST = 200


def made_or_read(path: Path) -> str:
    """The token of a file; where there is no such file, a fresh one in a new file.

    Raises:
        PathError: It can't be read or written, or others can read it.
    """
    if not path.exists():
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise PathError(*told(path, error, "written")) from None
        with replacing(path, force=False, mode=PRIVATE) as file:
            file.write(secrets.token_urlsafe(_BYTES).encode() + b"\n")
    return read(path)


def read(path: Path) -> str:
    """The token of a file.

    Raises:
        PathError: It can't be read, holds none, or others can read it.
    """
    name = shorter(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            mode, content = os.fstat(descriptor).st_mode, file.read(_LONGEST + 1)
    except FileNotFoundError:
        raise PathError(
            f"There is no token in {name}.", "Copy the engine's there, or name it: --token-file."
        ) from None
    except OSError as error:
        raise PathError(*told(path, error)) from None
    if mode & 0o077:
        raise PathError(f"Others can read the token in {name}.", f"chmod 600 {name}, or make a new one.")
    token = content.decode("ascii", "replace").strip()
    if not token or len(content) > _LONGEST or not token.isprintable():
        raise PathError(f"{name} holds no token.", "Remove it: the engine makes a new one.")
    return token
