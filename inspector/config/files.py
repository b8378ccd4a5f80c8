"""Small user files, which are replaced as a whole, and the crash log.

JSON tables are meant to be read and edited by hand. Entries that this version doesn't know stay in them, and a file
that can't be read is renamed, never overwritten.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from engine.errors import EngineError, PathError
from engine.files import PRIVATE, TEXT_LIMIT, message_and_hint, read_regular, replacing, shorter
from inspector import places

LOCK_SECONDS = 1.0
"""Maximum wait for a lock, during which the screen is frozen. Other programs only write a few kilobytes."""


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock a file against changes by the user's other programs, so that no change is lost.

    The directory is locked, since it stays when the file is replaced. If its file system has no locks, or it can't be
    created, there is no lock; an error is raised when the file is written.

    Args:
        path: The file; the lock holds for all files in its directory.

    Raises:
        PathError: Another program has kept the lock for `LOCK_SECONDS`.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path.parent, os.O_RDONLY)
    except OSError:
        yield
        return
    until = time.monotonic() + LOCK_SECONDS
    try:
        with suppress(OSError):
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > until:
                        raise PathError(
                            f"Another program has locked {shorter(path.parent)}.",
                            "Let it go on, or end it; then try again.",
                        ) from None
                    time.sleep(LOCK_SECONDS / 50)
        yield
    finally:
        os.close(descriptor)


def write(path: Path, text: str) -> None:
    """Replace a file as a whole: other programs see either the old one or the new one.

    Args:
        path: The file; its directory is created.
        text: The new content; lone surrogates are written as escapes.

    Raises:
        PathError: The file can't be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PathError(*message_and_hint(path, error, "written")) from error
    with replacing(path, mode=PRIVATE) as file:
        file.write(text.encode("utf-8", "backslashreplace"))


# ---- tables of JSON -----------------------------------------------------------------------------


CORRECT = "Correct the file; otherwise the next saving renames it and begins a new one."


class TableFile:
    """A JSON file with one table: `{"presets": {...}}`.

    Args:
        path: The file; it need not exist.
        table: Name of the table.
        form: The form of an entry, for messages.
        what: The content, as the beginning of a sentence.
        fault: The sentence on an invalid entry, with `{name}`, `{path}` and `{error}`.
        mend: A sentence on what to do if the file can't be read.
    """

    def __init__(self, path: Path, table: str, form: str, what: str, fault: str, mend: str = CORRECT) -> None:
        self.path = path
        self._table, self._form, self._what, self._fault, self._mend = table, form, what, fault, mend

    def read(
        self, check: Callable[[str, Any], Any], known: Container[str] | None = None
    ) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Read the table; without a file it is empty.

        Args:
            check: Returns the value of an entry from its name and JSON value; its EngineErrors are reported.
            known: The names of the entries that are read; None for all.

        Returns:
            The valid entries, and a sentence for each fault.
        """
        content, problem = self._content()
        values, problems = {}, [problem] if problem else []
        for name, value in content.get(self._table, {}).items():
            try:
                if known is None or name in known:
                    values[name] = check(name, value)
            except EngineError as error:
                problems.append(self._fault.format(name=name, path=self.path, error=error))
        return values, tuple(problems)

    def _content(self) -> tuple[dict[str, Any], str]:
        """The whole file, and a sentence if it can't be read."""
        try:
            content = json.loads(read_regular(self.path, TEXT_LIMIT).decode())
            if not isinstance(content, dict) or not isinstance(content.get(self._table, {}), dict):
                raise ValueError(f'it is not {{"{self._table}": {{{self._form}}}}}')
        except FileNotFoundError:
            return {}, ""
        except (OSError, ValueError, RecursionError) as error:
            why = getattr(error, "strerror", None) or error
            return {}, f"{self._what} in {self.path} can't be read: {why}. {self._mend}"
        return content, ""

    def change(self, edit: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> str:
        """Replace the table; another window may have changed it meanwhile.

        Args:
            edit: Makes the new table from the current one.

        Returns:
            A space and a sentence on the renamed file if it was damaged; else empty.

        Raises:
            PathError: The file can't be written.
        """
        with locked(self.path):
            content, problem = self._content()
            content[self._table], moved = edit(content.get(self._table, {})), ""
            if problem:
                number = 1
                while (other := self.path.with_suffix(f".damaged-{number}.json")).exists():
                    number += 1
                try:
                    self.path.replace(other)
                except OSError as error:
                    raise PathError(*message_and_hint(self.path, error, "written")) from error
                moved = f" The file that could not be read is now {other.name}."
            write(self.path, json.dumps(content, ensure_ascii=False, indent=2) + "\n")
        return moved


# ---- the log of crashes -------------------------------------------------------------------------


def log_crash(command: str, trace: str) -> Path | None:
    """Append a traceback to the log.

    Args:
        command: What was being done.
        trace: The traceback.

    Returns:
        The log file; None if it can't be written.
    """
    try:
        path = places.log()
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8", errors="backslashreplace") as log:
            log.write(f"{datetime.now().isoformat(timespec='seconds')} {command}\n{trace.rstrip()}\n\n")
    except OSError:
        return None
    return path
