"""Small files of the user: replaced as a whole, and set aside where they can't be read."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from engine.errors import PathError
from engine.files import PRIVATE, replacing, told


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Keep other programs of the user from changing a file meanwhile, so that what one reads and writes is all of it.

    The directory is what is locked: it stays where the file is replaced. Where its file system has no locks, or it
    can't be made, there is no lock, and what is wrong with it is told when the file is written.

    Args:
        path: The file; all others in its directory wait, too.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path.parent, os.O_RDONLY)
    except OSError:
        yield
        return
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def write(path: Path, text: str) -> None:
    """Replace a file as a whole: whoever reads it finds the old one or the new one.

    Args:
        path: Where; directories on the way are made.
        text: All of it; what is no Unicode is written as escapes.

    Raises:
        PathError: It can't be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PathError(*told(path, error, "written")) from error
    with replacing(path, mode=PRIVATE) as file:
        file.write(text.encode("utf-8", "backslashreplace"))


def set_aside(path: Path) -> str:
    """Rename a file that can't be read, so that nothing of it is lost.

    Returns:
        A sentence for the user, with a space before it.

    Raises:
        PathError: It can't be renamed.
    """
    number = 1
    while (aside := path.with_suffix(f".damaged-{number}.json")).exists():
        number += 1
    try:
        path.replace(aside)
    except OSError as error:
        raise PathError(*told(path, error, "written")) from error
    return f" The file that could not be read is now {aside.name}."
