"""What an engine sent of the present model and of the one before, numbered, for clients that come back or join.

The first few MiB are in memory, a longer session is in a temporary file without a name, for the user alone. The
engine's thread appends and waits for no client; each connection reads at its own pace.
"""

from __future__ import annotations

import tempfile
from array import array
from contextlib import suppress
from threading import Condition, Thread
from typing import IO

from engine import wire
from engine.errors import WireError
from engine.protocol import Command
from engine.remote import SILENCE_SECONDS
from engine.remote.lines import Lines, line_of, object_of

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


# ---- one connection of a client that was let in ------------------------------------------------

_PING = b'{"ping":'
GOODBYE_SECONDS = 2.0


class Visitor:
    """The one client of an engine.

    Args:
        lines: Its connection.
        journal: What it is sent.
        number: Of the line of the journal that it gets first.
        client: Its number.
    """

    def __init__(self, lines: Lines, journal: RecordJournal, number: int, client: int) -> None:
        self._lines, self._journal, self._number = lines, journal, number
        self.client = client
        self._bye: str | None = None
        """Why it is sent away; empty where it left by itself."""
        self._pinged = 0
        self._sender = Thread(target=self._send, name="sender", daemon=True)

    def dismiss(self, why: str) -> None:
        """Send it away, once what is being written is written."""
        with self._journal.changed:
            if self._bye is None:
                self._bye = why
            self._journal.changed.notify_all()

    def speaks_on(self, lines: Lines) -> bool:
        """True if a connection is this one's."""
        return self._lines is lines

    # ---- reading ----------------------------------------------------------------------------

    def begin(self, welcome: bytes) -> None:
        """Welcome it, and begin to send.

        Raises:
            OSError: It has gone.
        """
        self._lines.write(welcome, SILENCE_SECONDS)
        self._sender.start()

    def command(self) -> Command | None:
        """The next command that it sends; None where it has gone or is sent away.

        Raises:
            WireError: What it sends is none.
        """
        while (line := self._lines.read(wire.LIMIT, SILENCE_SECONDS)) is not None:
            if line.startswith(_PING):
                self._ping(line)
                continue
            command = wire.decode(line)
            if not isinstance(command, Command):
                raise WireError("An engine takes commands, not records.")
            return command
        return None

    def _ping(self, line: bytes) -> None:
        number = object_of(line).get("ping")
        if type(number) is not int or not 0 <= number < 2**53:
            raise WireError("A ping has no number.")
        with self._journal.changed:
            self._pinged = number
            self._journal.changed.notify_all()

    def end(self) -> None:
        """End the connection, after what there is to say."""
        self.dismiss("")
        self._sender.join(GOODBYE_SECONDS)
        self._lines.hang_up()
        self._sender.join(GOODBYE_SECONDS)
        self._lines.close()

    # ---- sending, in a thread of its own ----------------------------------------------------

    def _send(self) -> None:
        with suppress(OSError):  # it has gone, or takes nothing: the reader sees the end
            while (data := self._portion()) is not None:
                self._lines.write(data, SILENCE_SECONDS)
            if self._bye:
                self._lines.say(GOODBYE_SECONDS, bye=self._bye)
        self._lines.hang_up()

    def _portion(self) -> bytes | None:
        """Wait for what comes next; None once it is to go."""
        journal = self._journal
        with journal.changed:
            journal.changed.wait_for(
                lambda: self._bye is not None or self._pinged or journal.next > self._number
            )
            if self._bye is not None:
                return None
            if self._pinged:
                pong, self._pinged = line_of(pong=self._pinged), 0
                return pong
            if self._number < journal.oldest:
                self._bye = "The connection is too slow: two models were loaded meanwhile."
                return None
            data, self._number = journal.read(self._number)
            return data
