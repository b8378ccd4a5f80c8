"""A backend whose engine is elsewhere: sends commands, hands out records, and comes back after a lost connection.

Two threads besides the caller's: one connects and reads, one writes. What the engine sent is handed out in its order;
of a command that was on its way when the connection ended, the client learns when it is back whether it arrived.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from queue import Empty, SimpleQueue
from threading import Condition, Thread
from typing import Any, Literal

from engine import wire
from engine.errors import EngineError, WireError
from engine.frozen import frozen
from engine.protocol import Cancel, Command, Ended, Failure, Load, Record
from engine.remote import CLIENT_IDS, HELLO_LIMIT, PING_SECONDS, PROTOCOL, SILENCE_SECONDS
from engine.remote.lines import Lines, object_of
from engine.remote.link import Link

Stage = Literal["starting", "connected", "away", "gone"]


@frozen
class Connection:
    """How it stands with an engine that is elsewhere."""

    where: str
    stage: Stage = "starting"
    """`away`: the connection was lost and is tried again; `gone`: it is not, and its session is lost."""
    why: str = ""
    """What went wrong, one line; not made printable."""
    attempts: int = 0
    """Since it was lost."""
    next_at: float = 0.0
    """When the next attempt is due, on the clock of `time.monotonic`."""
    since: float = 0.0
    """When this stage began, on the same clock."""
    round_trip: float | None = None
    """Seconds from the last ping to its answer."""


# ---- the handshake -----------------------------------------------------------------------------


class Gone(Exception):
    """The engine, or the session that it had for us, is not there any more."""


class Busy(OSError):
    """The engine takes no further client now."""


@frozen
class Welcome:
    """The greeting of an engine to a client that it lets in."""

    engine: str
    """Of this run of the engine; another one has another session."""
    client: int
    """The client's number, which its commands' ids begin with."""
    number: int
    """Of the first record that it will send."""
    next: int
    """Number of the first record that is new."""
    outstanding: tuple[int, ...]
    """Ids of the commands that had not ended."""
    model: bool
    """True if there is a session with a model."""


def shake_hands(
    lines: Lines, token: str, program: str, engine: str, client: int, begin: int | str
) -> Welcome:
    """Say who one is, and be welcomed.

    Args:
        lines: A new connection.
        token: The secret.
        program: Version of the program.
        engine: The engine that one comes back to; empty for none.
        client: The number that one had there.
        begin: Number of the first record wanted, or `session` or `end`.

    Raises:
        OSError: The connection ended.
        Busy: The engine refuses for now.
        Gone: It refuses for good, or what answers is none.
        WireError: What answers is none.
    """
    lines.say(
        SILENCE_SECONDS, hello=PROTOCOL, token=token, wire=wire.VERSION, program=program, engine=engine, client=client,
        **{"from": begin},
    )  # fmt: skip
    line = lines.read(wire.LIMIT, SILENCE_SECONDS)
    if line is None:
        raise ConnectionResetError("it closed the connection")
    return _checked(object_of(line))


def _checked(said: dict[str, Any]) -> Welcome:
    """A welcome.

    Raises:
        Busy: The engine refuses for now.
        Gone: It refuses for good, or the line is no welcome.
    """
    if "refused" in said:
        why = str(said["refused"])[:HELLO_LIMIT]
        raise (Gone if said.get("final") is True else Busy)(why)
    engine, model, ids = said.get("engine"), said.get("model"), said.get("outstanding")
    numbers: list[Any] = [said.get(name) for name in ("client", "number", "next")]
    if type(ids) is list and type(engine) is str and type(model) is bool and _whole(numbers) and _whole(ids):
        client, number, after = numbers
        return Welcome(engine, client, number, after, tuple(ids), model)
    raise Gone("A program answers there, but it is not an engine of mlx-inspector.")


def _whole(values: list[Any]) -> bool:
    return all(type(value) is int and 0 <= value < 2**64 for value in values)


# ---- the engine --------------------------------------------------------------------------------

WAITS = (0.5, 1.0, 2.0, 4.0, 5.0)
"""Seconds before the next attempt to connect; the last one from then on."""
_RECORD = b'{"wire":'


class RemoteEngine:
    """An engine that is reached through a link.

    Args:
        emit: Receives each record, in a thread of this object.
        link: The way to it.
        program: Version of the program.
        on_change: Called in that thread whenever the stage of the connection changes.
        adopt: Called in that thread with commands of another client that were carried out: what no record holds.
    """

    def __init__(
        self,
        emit: Callable[[Record], None],
        link: Link,
        program: str,
        on_change: Callable[[Connection], object] = lambda connection: None,
        adopt: Callable[[Command], None] = lambda command: None,
    ) -> None:
        self.emit, self.on_change, self.adopt = emit, on_change, adopt
        self._link, self._program = link, program
        self._state = Condition()
        """Guards all that follows; notified when the stage or what is asked for changes."""
        self.connection = Connection(link.where)
        self.joins = False
        """True if the first connection shows the session that is there."""
        self.has_session = False
        """True if there was one with a model when the connection was made."""
        self._lines: Lines | None = None
        self._closing = self._hurried = self._given_up = False
        self._engine, self._client, self._number = "", 0, 0
        self._outstanding: dict[int, Command] = {}
        self._unsent: set[int] = set()
        """Ids of outstanding commands that the engine didn't have when the connection was made."""
        self._caught_up = 0
        """Number of the record at which that is certain."""
        self._sending: SimpleQueue[Command | None] = SimpleQueue()
        """None for the end of the connection."""
        self._thread: Thread | None = None

    @property
    def far(self) -> bool:
        """True if the engine may be on another machine, with other files."""
        return self._link.far

    # ---- the backend ------------------------------------------------------------------------

    def connect(self) -> None:
        """Connect now, where `start` would do so in its thread: to refuse a wrong address before a screen is opened.

        Raises:
            EngineError: The engine is not there, or refuses.
        """
        try:
            self._meet()
        except (Gone, Busy) as error:
            raise EngineError(f"{self._link.where}: {error}") from None
        except OSError as error:
            raise EngineError(
                f"No engine answers at {self._link.where}: {error.strerror or error}.",
                "Start one there: inspector engine.",
            ) from None

    def start(self) -> None:
        """Begin to connect and to take commands; again after `gone`, with a new session."""
        with self._state:
            if self._thread is not None and self.connection.stage != "gone":
                return
            if self.connection.stage == "gone":
                self.joins, self._engine, self._client = False, "", 0
                self._set("starting")
            self._given_up = False
        self._thread = Thread(target=self._work, name="remote", daemon=True)
        self._thread.start()

    def send(self, command: Command) -> None:
        """Send a command.

        While the engine is away it is refused, by a `Failure` and its `Ended`; where it is gone, a `Load` begins anew.
        """
        with self._state:
            if self.connection.stage == "gone" and isinstance(command, Load):
                self.start()
            stage, why = self.connection.stage, self.connection.why
            if stage in ("connected", "starting"):
                self._send(command)
                return
        if isinstance(command, Cancel):
            return  # what it names is being given up
        hint = "Wait until it is back." if stage == "away" else ""
        self._refuse(command, f"The engine is {stage}: {why.rstrip('.')}.", hint)

    def _send(self, command: Command) -> None:
        if not isinstance(command, Cancel):
            self._outstanding[command.id] = command
        self._sending.put(command)

    def close(self, timeout: float = 2.0) -> bool:
        """Leave: the session stays with an engine that listens, a process of our own ends."""
        began = time.monotonic()
        with self._state:
            self._closing = True
            self._state.notify_all()
            lines, self._lines = self._lines, None
        if lines is not None:
            lines.hang_up()
        if self._thread is not None:
            self._thread.join(timeout)
        elif lines is not None:
            lines.close()
        return self._link.close(max(0.1, timeout - (time.monotonic() - began)))

    # ---- a person ---------------------------------------------------------------------------

    def retry(self) -> None:
        """Try to connect again now."""
        with self._state:
            self._hurried = True
            self._state.notify_all()

    def give_up(self) -> None:
        """Try no more: the session counts as lost."""
        with self._state:
            self._given_up = True
            self._state.notify_all()
            if self._lines is not None:
                self._lines.hang_up()

    # ---- connecting -------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            self._serve()
        except (Gone, EngineError) as error:
            self._lose(str(error))

    def _serve(self) -> None:
        """Connect and converse, again and again.

        Raises:
            Gone: For good: the engine refuses, its process has ended, or it was given up.
            EngineError: What it sends is no message, or no process can be started.
        """
        attempts = 0
        while not self._closing:
            try:
                lines = self._lines or self._meet()
                attempts = 0
                why = self._converse(lines)
            except Busy as error:
                why = str(error)
            except OSError as error:
                why = f"no engine answers: {error.strerror or error}"
            if self._closing:
                return
            if not self._link.returns:
                raise Gone(self._link.ending(why))
            attempts += 1
            self._wait(attempts, why)

    def _wait(self, attempts: int, why: str) -> None:
        """Wait for the next attempt.

        Raises:
            Gone: It was given up.
        """
        seconds = WAITS[min(attempts, len(WAITS)) - 1]
        with self._state:
            self._lines = None
            self._sending = SimpleQueue()  # what was not written is among what the engine will not have
            self._set("away", why=why, attempts=attempts, next_at=time.monotonic() + seconds)
            self._state.wait_for(lambda: self._closing or self._hurried or self._given_up, seconds)
            self._hurried = False
            if self._given_up:
                raise Gone("You gave it up.")

    def _meet(self) -> Lines:
        """Connect and shake hands.

        Raises:
            OSError: Nothing answers, or another client is connected.
            Gone: The engine refuses for good.
        """
        lines = Lines(self._link.open())
        try:
            begin = self._number if self._engine else "session" if self.joins else "end"
            welcome = shake_hands(lines, self._link.token, self._program, self._engine, self._client, begin)
        except BaseException:
            lines.close()
            raise
        with self._state:
            if self._closing:
                lines.close()
                raise Gone("The program is being left.")
            self._lines, first = lines, self.connection.stage == "starting"
            self._engine, self._client = welcome.engine, welcome.client
            self._number, self._caught_up = welcome.number, welcome.next
            self.has_session = welcome.model
            there = {id - self._client * CLIENT_IDS for id in welcome.outstanding}
            self._unsent = set() if first else self._outstanding.keys() - there
            self._set("connected")
        return lines

    # ---- a connection -----------------------------------------------------------------------

    def _converse(self, lines: Lines) -> str:
        """Take what the engine sends until the connection ends; returns why it ended.

        Raises:
            WireError: What it sends is no message.
        """
        sending = self._sending
        writer = Thread(target=self._write, args=(lines, sending), name="remote sender", daemon=True)
        writer.start()
        self._note_caught_up()
        why = "the connection was lost"
        try:
            while (line := lines.read(wire.LIMIT, SILENCE_SECONDS)) is not None:
                if line.startswith(_RECORD):
                    self._take(line)
                    continue
                said = object_of(line)
                if "bye" in said:
                    why = str(said["bye"])[:HELLO_LIMIT].rstrip(".")
                elif type(pinged := said.get("pong")) is int:
                    self._answered(pinged)
        except TimeoutError as error:
            why = str(error)
        finally:
            lines.hang_up()
            sending.put(None)
            writer.join()
            lines.close()
        return why

    def _take(self, line: bytes) -> None:
        message = wire.decode(line)
        with self._state:
            self._number += 1
            own = self._client * CLIENT_IDS
        if isinstance(message, Command):
            if not own <= message.id < own + CLIENT_IDS:
                self.adopt(message)
        else:
            mine = own <= message.request < own + CLIENT_IDS
            if isinstance(message, Failure) and message.lost_rank is not None and not self._link.far:
                raise Gone(message.message)  # not its hint: a fresh process has all ranks again
            # what another client's command failed with is shown there alone, but for a model that can't be loaded
            if mine or not isinstance(message, Failure) or message.command == Load.kind:
                self._hand_out(replace(message, request=message.request - own if mine else 0))
        self._note_caught_up()

    def _hand_out(self, record: Record) -> None:
        if isinstance(record, Ended):
            with self._state:
                self._outstanding.pop(record.request, None)
        self.emit(record)

    def _note_caught_up(self) -> None:
        """Once all is there that was before the connection, say of what never arrived that it didn't."""
        with self._state:
            if self._number < self._caught_up or not self._unsent:
                return
            lost, self._unsent = self._unsent, set()
            never = [command for id, command in self._outstanding.items() if id in lost]
        for command in never:
            self._refuse(command, "The connection was lost before it reached the engine.", "Do it again.")

    def _refuse(self, command: Command, why: str, hint: str) -> None:
        # A `Failure` of a `Load` says that the model before it is gone, and here the engine still has it.
        kind = "Open" if isinstance(command, Load) else command.kind
        self.emit(Failure(kind, why, hint, request=command.id))
        self._hand_out(Ended(command.kind, cancelled=True, request=command.id))

    def _answered(self, pinged: int) -> None:
        with self._state:
            took = time.monotonic() - pinged / 1e6
            self.connection = replace(self.connection, round_trip=took)

    # ---- writing, in a thread of its own ----------------------------------------------------

    def _write(self, lines: Lines, sending: SimpleQueue[Command | None]) -> None:
        with suppress(OSError):  # the reader sees the end
            while True:
                try:
                    command = sending.get(timeout=PING_SECONDS)
                except Empty:
                    lines.say(SILENCE_SECONDS, ping=int(time.monotonic() * 1e6))
                    continue
                if command is None:
                    return
                if (data := self._encoded(command)) is not None:
                    lines.write(data, SILENCE_SECONDS)
        lines.hang_up()

    def _encoded(self, command: Command) -> bytes | None:
        own = self._client * CLIENT_IDS
        if isinstance(command, Cancel):
            command = replace(command, target=command.target + own)
        try:
            return wire.encode(replace(command, id=command.id + own)) + b"\n"
        except WireError as error:
            self._refuse(command, error.message, error.hint)
            return None

    # ---- stages -----------------------------------------------------------------------------

    def _set(self, stage: Stage, **more: Any) -> None:
        """Be in another stage; called with the lock held, and so is `on_change`."""
        since = self.connection.since if stage == self.connection.stage else time.monotonic()
        self.connection = Connection(self._link.where, stage, since=since, **more)
        self._state.notify_all()
        self.on_change(self.connection)

    def _lose(self, why: str) -> None:
        """Have lost the engine for good: whatever is outstanding has ended."""
        with self._state:
            if self._closing:
                return
            self._lines = None
            self._sending = SimpleQueue()
            left, self._outstanding = list(self._outstanding.values()), {}
            self._set("gone", why=why)
        self._link.close(0.1)
        for command in left:
            if isinstance(command, Load):  # there is no model, and no screen to tell it but in its place
                self.emit(Failure(command.kind, why, "Open it once more to try again.", request=command.id))
            self.emit(Ended(command.kind, cancelled=True, request=command.id))
