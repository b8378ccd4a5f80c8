"""Small files of the user: replaced as a whole, and set aside where they can't be read; and the log of crashes.

Tables of JSON are meant to be read and edited by hand. What this version doesn't know stays in them, and a file that
can't be read is moved aside, never overwritten.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from engine.errors import EngineError, PathError
from engine.files import PRIVATE, TEXT_LIMIT, message_and_hint, read_regular, replacing, shorter
from inspector import places

LOCK_SECONDS = 1.0
"""The longest wait for a lock. Others write a few kilobytes; the screen shows nothing meanwhile."""


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Keep other programs of the user from changing a file meanwhile, so that what one reads and writes is all of it.

    The directory is what is locked: it stays where the file is replaced. Where its file system has no locks, or it
    can't be made, there is no lock, and what is wrong with it is told when the file is written.

    Args:
        path: The file; all others in its directory wait, too.

    Raises:
        PathError: Another program has kept the lock for `LOCK_SECONDS`.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path.parent, os.O_RDONLY)
    except OSError:
        yield
        return
    try:
        if not _locked(descriptor):
            raise PathError(
                f"Another program has locked {shorter(path.parent)}.",
                "Let it go on, or end it; then try again.",
            )
        yield
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    """Lock a directory, where its file system has locks; returns False while another program keeps it locked."""
    until = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                return False
            time.sleep(LOCK_SECONDS / 50)
        except OSError:
            return True
        else:
            return True


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
        raise PathError(*message_and_hint(path, error, "written")) from error
    with replacing(path, mode=PRIVATE) as file:
        file.write(text.encode("utf-8", "backslashreplace"))


# ---- tables of JSON -----------------------------------------------------------------------------


class DamagedFileError(EngineError):
    """Nothing of a file can be used."""


class TableFile:
    """A file of JSON with one table: `{"presets": {...}}`.

    Args:
        path: The file; it need not exist.
        table: Name of the table.
        form: Of an entry, as a message shows it.
        what: Is in it, as the beginning of a sentence.
        mend: What to do where it can't be read, as a sentence.
    """

    def __init__(self, path: Path, table: str, form: str, what: str, mend: str) -> None:
        self.path = path
        self._table, self._form, self._what, self._mend = table, form, what, mend

    def read(self) -> Mapping[str, Any]:
        """The table, whatever its entries are; empty where there is no file.

        Raises:
            DamagedFileError: The file can't be read.
        """
        table: dict[str, Any] = self._content().get(self._table, {})
        return table

    def _content(self) -> dict[str, Any]:
        try:
            content = json.loads(read_regular(self.path, TEXT_LIMIT).decode())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as error:
            raise self._damaged(str(getattr(error, "strerror", None) or error)) from error
        if not isinstance(content, dict) or not isinstance(content.get(self._table, {}), dict):
            raise self._damaged(f'it is not {{"{self._table}": {{{self._form}}}}}')
        return content

    def _damaged(self, why: str) -> DamagedFileError:
        return DamagedFileError(f"{self._what} in {self.path} can't be read: {why}.", self._mend)

    def change(self, edit: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> str:
        """Replace the table; another window may have changed it meanwhile.

        Args:
            edit: Given the table as it is, returns it as it is to be.

        Returns:
            A sentence on what became of a damaged file, with a space before it; empty for most.

        Raises:
            PathError: The file can't be written.
        """
        with alone(self.path):
            damaged = False
            try:
                content = self._content()
            except DamagedFileError:
                content, damaged = {}, True
            content[self._table] = edit(content.get(self._table, {}))
            moved = _set_aside(self.path) if damaged else ""
            write(self.path, json.dumps(content, ensure_ascii=False, indent=2) + "\n")
        return moved


def _set_aside(path: Path) -> str:
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
        raise PathError(*message_and_hint(path, error, "written")) from error
    return f" The file that could not be read is now {aside.name}."


# ---- the log of crashes -------------------------------------------------------------------------


def log_crash(command: str, trace: str) -> Path | None:
    """Append a traceback to the log.

    Args:
        command: What was being done.
        trace: The traceback.

    Returns:
        The log file, None where it can't be written.
    """
    try:
        path = places.log()
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8", errors="backslashreplace") as log:
            log.write(f"{datetime.now().isoformat(timespec='seconds')} {command}\n{trace.rstrip()}\n\n")
    except OSError:
        return None
    return path
