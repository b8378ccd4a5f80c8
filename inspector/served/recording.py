"""The files of a recording of a server: for their owner alone, appended to, another one begun where one is full."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from engine.errors import PathError
from engine.files import PRIVATE, message_and_hint, shorter
from engine.frozen import slotted
from inspector.served.exchange import head_line

_NEW = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@slotted
class Part:
    """One file."""

    path: Path
    descriptor: int
    size: int = 0
    """Bytes."""
    open: int = 0
    """Exchanges in it whose reply isn't over."""


class RecordingFiles:
    """Writes a recording.

    Args:
        path: Of its first file, which must not exist; the next ones are `NAME-2.jsonl` and so on.
        head: Name and version of the program, and the server's URL.
        most: Bytes after which the next exchange begins another file.
        complain: Gets the sentence on what can't be written, once.

    Raises:
        PathError: The file can't be made.
    """

    def __init__(self, path: Path, head: tuple[str, str], most: int, complain: Callable[[str], None]) -> None:
        self.exchanges = 0
        self.failed = False
        """True if something couldn't be written: from then on nothing is."""
        self._first, self._head, self._most, self._complain = path, head_line(*head), most, complain
        self._count = 1
        try:
            self._part = self._begun(path)
        except FileExistsError as error:
            raise PathError(f"{shorter(path)} already exists.", "Choose another name.") from error
        except OSError as error:
            raise PathError(*message_and_hint(path, error, "written")) from error

    @property
    def path(self) -> Path:
        """Of the file that is being written."""
        return self._part.path

    def begin(self) -> tuple[int, Part]:
        """Begin an exchange; returns its number, and the file that both of its lines go to."""
        if self._part.size >= self._most and not self.failed:
            full = self._part
            try:
                self._part = self._another()
                self._close_if_over(full)
            except OSError as error:
                self._fail(error)
        self.exchanges += 1
        self._part.open += 1
        return self.exchanges, self._part

    def write(self, line: str, part: Part | None) -> None:
        """Append a line to a file: the system has it when this returns, whatever becomes of the process."""
        if self.failed or part is None:
            return
        left = memoryview(line.encode())
        part.size += len(left)
        try:
            while left:
                left = left[os.write(part.descriptor, left) :]
        except OSError as error:
            self._fail(error)

    def end(self, part: Part | None) -> None:
        """End an exchange: a full file without open ones is closed."""
        if part is not None:
            part.open -= 1
            self._close_if_over(part)

    def close(self) -> None:
        """Close the present file."""
        os.close(self._part.descriptor)

    def _close_if_over(self, part: Part) -> None:
        if part is not self._part and not part.open:
            os.close(part.descriptor)

    def _another(self) -> Part:
        while True:
            self._count += 1
            path = self._first.with_name(f"{self._first.stem}-{self._count}{self._first.suffix}")
            try:
                return self._begun(path)
            except FileExistsError:
                continue

    def _begun(self, path: Path) -> Part:
        part = Part(path, os.open(path, _NEW, PRIVATE))
        head = self._head.encode()
        part.size = os.write(part.descriptor, head)
        return part

    def _fail(self, error: OSError) -> None:
        self.failed = True
        message = " ".join(message_and_hint(self._part.path, error, "written"))
        self._complain(f"{message} Nothing more is recorded; requests and replies pass as before.")
