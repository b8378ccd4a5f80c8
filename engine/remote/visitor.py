"""One connection of a client that was let in: sends it the journal from its place on, and reads what it sends."""

from __future__ import annotations

from contextlib import suppress
from threading import Thread

from engine import wire
from engine.errors import WireError
from engine.protocol import Command
from engine.remote import SILENCE_SECONDS
from engine.remote.journal import RecordJournal
from engine.remote.lines import Lines, line_of, object_of

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
        """Whether a connection is this one's."""
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
                raise WireError("An engine takes commands, no records.")
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
