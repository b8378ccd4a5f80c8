"""What an engine told of the present model and of the one before, numbered, for clients that come back or join.

The first few MiB are in memory, a longer session is in a temporary file without a name, for the user alone. The
engine's thread appends and waits for no client; each connection reads at its own pace.
"""

from __future__ import annotations

import tempfile
from array import array
from threading import Condition
from typing import IO

MEMORY = 8 * 2**20
"""Bytes of each of the two parts that are kept in memory; 3,000 steps of the bundled model are about as many."""
PORTION = 2**18
"""Bytes that are read at once, one line at least."""


class _ModelLines:
    """The lines of one model."""

    def __init__(self, first: int) -> None:
        self.first = first
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(max_size=MEMORY)  # noqa: SIM115 (closed with the part)
        self._ends = array("Q", [0])

    @property
    def next(self) -> int:
        return self.first + len(self._ends) - 1

    def append(self, line: bytes) -> None:
        self._file.seek(self._ends[-1])
        self._file.write(line)
        self._ends.append(self._ends[-1] + len(line))

    def read(self, number: int) -> tuple[bytes, int]:
        at = number - self.first
        begin = self._ends[at]
        until = at + 1
        while until < len(self._ends) - 1 and self._ends[until + 1] - begin <= PORTION:
            until += 1
        self._file.seek(begin)
        return self._file.read(self._ends[until] - begin), self.first + until

    def close(self) -> None:
        self._file.close()


class RecordJournal:
    """Numbered lines, of which the last two parts are kept.

    Every method is called with `changed` held.
    """

    def __init__(self) -> None:
        self.changed = Condition()
        """Notified when there is something to send."""
        self._parts = [_ModelLines(0)]

    @property
    def first(self) -> int:
        """Number of the first line of the present part."""
        return self._parts[-1].first

    @property
    def oldest(self) -> int:
        """Number of the first line that is kept."""
        return self._parts[0].first

    @property
    def next(self) -> int:
        """Number of the line to come."""
        return self._parts[-1].next

    def append(self, line: bytes) -> None:
        """Append a line, with its end.

        Raises:
            OSError: There is no room for it; nothing was appended.
        """
        self._parts[-1].append(line)
        self.changed.notify_all()

    def begin(self) -> None:
        """Begin a new part; of those before it the last one is kept."""
        self._parts.append(_ModelLines(self.next))
        while len(self._parts) > 2:
            self._parts.pop(0).close()

    def read(self, number: int) -> tuple[bytes, int]:
        """Some lines from a number on.

        Args:
            number: Of the first one, at least `oldest` and below `next`.

        Returns:
            The lines, and the number after them.
        """
        part = next(part for part in reversed(self._parts) if part.first <= number)
        return part.read(number)

    def close(self) -> None:
        """Let go of all of it."""
        for part in self._parts:
            part.close()
