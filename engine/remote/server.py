"""An engine that answers one client at a time through sockets, and outlives each of them."""

from __future__ import annotations

import hmac
import os
import secrets
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Thread
from typing import Any

from engine import wire
from engine.errors import WireError
from engine.protocol import (
    Cancel,
    Command,
    Configure,
    Ended,
    Failure,
    Load,
    ModelFacts,
    Prefill,
    PromptOpened,
    Record,
    ends_model,
)
from engine.remote import CLIENT_IDS, HELLO_LIMIT, HELLO_SECONDS, PROTOCOL
from engine.remote.journal import RecordJournal, Visitor
from engine.remote.lines import Complaints, Lines, line_of, object_of
from engine.thread import EngineThread

MOST_OUTSTANDING = 256
"""Commands of a client that have not ended."""
MOST_WAITING = 8
"""Connections that have not shown the token yet: of those beyond them the oldest go."""
WRONG_SECONDS = 0.5
"""After a wrong token: so long until it is refused."""
LEAVING_SECONDS = 0.5
"""For which one waits for the client before it, who may be about to leave."""
_BUSY = "Another client is connected, and an engine takes one at a time: leave that one first."
_STRANGER = "This is an engine of mlx-inspector, and the token is wrong or missing."


class ClientRefused(Exception):
    """A client that is not let in.

    Args:
        why: One line.
        final: Whether trying again is no use.
    """

    def __init__(self, why: str, final: bool) -> None:
        super().__init__(why)
        self.why, self.final = why, final


class EngineServer:
    """One engine, and who is connected to it.

    Args:
        token: What a client must show; empty for a socket that nobody else can reach.
        program: Version of the program; a client of another one is refused.
        log: Takes a line about each client that comes or goes; called in the connection's thread.
    """

    def __init__(self, token: str, program: str, log: Callable[[str], None] = lambda line: None) -> None:
        self._token, self._program, self._log = token, program, log
        self.id = secrets.token_hex(8)
        """Of this process's engine: a client that comes back knows by it whether its session is still there."""
        self._journal = RecordJournal()
        self._changed = self._journal.changed
        """Guards all that follows, too."""
        self._engine = EngineThread(self._emit)
        self._running: dict[int, Command] = {}
        """Queued and running commands by their ids, in their order."""
        self._failed: set[int] = set()
        """Those among them that failed."""
        self._model = False
        """True if the journal's present part has a model."""
        self._lost = ""
        """Why the journal lacks records of the present model; empty where it has them all."""
        self._visitor: Visitor | None = None
        self._clients = 0
        self._waiting: dict[Lines, None] = {}
        """Connections that have not shown the token yet, the oldest first."""
        self._complaints = Complaints(log)
        self._since = time.monotonic()
        """When the last client left."""
        self._stopping = Event()

    # ---- connections ------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to import MLX."""
        self._engine.start()

    def serve(self, listener: socket.socket, idle: float | None = None) -> bool:
        """Take connections until `stop`.

        Args:
            listener: Listens.
            idle: Seconds without a client after which to end; None for never.

        Returns:
            Whether it ended since nobody was connected for so long.
        """
        listener.settimeout(0.25)
        while not self._stopping.is_set():
            self._complaints.tell()
            if idle is not None and self._visitor is None and time.monotonic() - self._since > idle:
                return True
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            except OSError:  # it had gone before, or there is no descriptor for it now
                self._stopping.wait(0.05)
                continue
            self._admit(connection)
        return False

    def _admit(self, connection: socket.socket) -> None:
        lines = Lines(connection)
        with self._changed:
            oldest = next(iter(self._waiting)) if len(self._waiting) >= MOST_WAITING else None
            self._waiting[lines] = None
            if oldest is not None:
                del self._waiting[oldest]
                oldest.hang_up()  # its thread, which waits for its first line, ends
                self._changed.notify_all()
        if oldest is not None:
            self._complaints.add(f"beyond the {MOST_WAITING} that may wait")
        try:
            Thread(target=self._meet, args=(lines,), name="client", daemon=True).start()
        except RuntimeError:  # the system gives no further thread
            with self._changed:
                self._waiting.pop(lines, None)
            lines.close()

    def stop(self) -> None:
        """Have `serve` end; may be called in a signal's handler."""
        self._stopping.set()

    def close(self, timeout: float = 2.0) -> bool:
        """Send the client away and end the engine; returns whether its thread ended in time."""
        self._stopping.set()
        if (visitor := self._visitor) is not None:
            visitor.dismiss("The engine was ended.")
        return self._engine.close(timeout)

    # ---- one client -------------------------------------------------------------------------

    def meet(self, connection: socket.socket) -> None:
        """Talk to a client from its first line until it leaves; every connection is closed here."""
        self._meet(Lines(connection))

    def _meet(self, lines: Lines) -> None:
        try:
            visitor = self._let_in(lines)
        finally:
            with self._changed:
                self._waiting.pop(lines, None)
        if visitor is None:
            lines.close()
            return
        self._log(f"Client {visitor.client} is connected.")
        why = "it closed the connection"
        try:
            while (command := visitor.command()) is not None:
                self._take(visitor, command)
        except (TimeoutError, WireError) as error:
            why = str(error)
            visitor.dismiss(why)
        finally:
            self._log(f"Client {visitor.client} has gone: {why.rstrip('.')}.")
            self._leave(visitor)
            visitor.end()

    def _let_in(self, lines: Lines) -> Visitor | None:
        """The visitor that a connection becomes; None where it was refused or has gone."""
        try:
            hello = self._hello(lines)
            with self._changed:
                visitor, welcome = self._welcome(lines, hello)
                before, self._visitor = self._visitor, visitor
            if before is not None:
                before.dismiss("Its program has another connection now.")
            visitor.begin(welcome)
        except ClientRefused as refused:
            self._complaints.add(f"refused: {refused.why.rstrip('.')}")
            self._refuse(lines, refused)
        except (OSError, WireError):
            self._forget_half(lines)
        else:
            return visitor
        return None

    def _refuse(self, lines: Lines, refused: ClientRefused) -> None:
        with suppress(OSError):  # it has gone
            lines.say(HELLO_SECONDS, refused=refused.why, final=refused.final)

    def _forget_half(self, lines: Lines) -> None:
        """A client that went while it was welcomed is none."""
        with self._changed:
            if self._visitor is not None and self._visitor.speaks_on(lines):
                self._free()

    def _hello(self, lines: Lines) -> dict[str, Any]:
        """The first line of a client that knows the token; to all others the answer is the same, and it is late."""
        try:
            line = lines.read(HELLO_LIMIT, HELLO_SECONDS, HELLO_SECONDS)
            hello = object_of(line) if line is not None else {}
        except (TimeoutError, WireError):
            hello = {}
        token = hello.get("token")
        given = token.encode("utf-8", "replace") if type(token) is str else b""
        if not hmac.compare_digest(given, self._token.encode()) or "hello" not in hello:
            with self._changed:
                if self._changed.wait_for(lambda: lines not in self._waiting, WRONG_SECONDS):
                    raise ConnectionError  # it made room for another
            raise ClientRefused(_STRANGER, final=True)
        spoken = (hello["hello"], hello.get("wire"), hello.get("program"))
        if spoken != (PROTOCOL, wire.VERSION, self._program):
            raise ClientRefused(self._other_version(str(spoken[2])[:40]), final=True)
        return hello

    def _other_version(self, theirs: str) -> str:
        """Why a client that is not made as this engine can't talk to it."""
        if theirs == self._program:
            return (
                f"Engine and client both call themselves version {theirs!a}, but come from different sources: "
                "install both from the same one."
            )
        return f"The engine is of version {self._program}, the client of {theirs!a}: install the same one."

    def _welcome(self, lines: Lines, hello: dict[str, Any]) -> tuple[Visitor, bytes]:
        """The visitor, and the line that welcomes it; called with the lock held."""
        journal, client = self._journal, hello.get("client", 0)
        returns = hello.get("engine") == self.id and type(client) is int and 0 < client <= self._clients
        if not (returns and self._visitor is not None and self._visitor.client == client):
            self._changed.wait_for(lambda: self._visitor is None, LEAVING_SECONDS)
            if self._visitor is not None:
                raise ClientRefused(_BUSY, final=False)
        number = self._place(hello.get("from"), returns)
        if not returns:
            self._clients += 1
            client = self._clients
        welcome = line_of(
            welcome=PROTOCOL, engine=self.id, client=client, number=number, next=journal.next,
            outstanding=list(self._running), model=self._model,
        )  # fmt: skip
        return Visitor(lines, journal, number, client), welcome

    def _place(self, begin: object, returns: bool) -> int:
        """Number of the first line that a client gets."""
        journal = self._journal
        if begin == "end":
            return journal.next
        if self._lost:
            raise ClientRefused(f"The engine has not kept all of its session: {self._lost}.", final=True)
        if begin == "session":
            return journal.first
        if not returns or type(begin) is not int:
            raise ClientRefused("The engine was started again: the session that it had is gone.", final=True)
        if not journal.oldest <= begin <= journal.next:
            raise ClientRefused("Other models were loaded meanwhile: the session is gone.", final=True)
        return begin

    def _leave(self, visitor: Visitor) -> None:
        """Cancel what escape would cancel, as nobody is there to see it."""
        with self._changed:
            if self._visitor is not visitor:
                return
            self._free()
            left = [command.id for command in self._running.values() if command.stoppable]
        for id in left:
            self._engine.send(Cancel(id))

    def _free(self) -> None:
        """Have a place for another client; called with the lock held."""
        self._visitor, self._since = None, time.monotonic()
        self._changed.notify_all()

    # ---- commands ---------------------------------------------------------------------------

    def _take(self, visitor: Visitor, command: Command) -> None:
        """Hand a command to the engine.

        Raises:
            WireError: It breaks the rules.
        """
        first = visitor.client * CLIENT_IDS
        if not first <= command.id < first + CLIENT_IDS:
            raise WireError("A command has an id that is not the client's.")
        if isinstance(command, Cancel):
            self._engine.send(command)
            return
        with self._changed:
            if self._visitor is not visitor:
                return  # it is being replaced: what it sent counts as not received
            if command.id in self._running:
                raise WireError("Two commands have the same id.")
            if len(self._running) >= MOST_OUTSTANDING:
                raise WireError(f"More than {MOST_OUTSTANDING} commands wait.")
            self._running[command.id] = command
        self._engine.send(command)

    # ---- records, in the engine's thread ----------------------------------------------------

    def _emit(self, record: Record) -> None:
        with self._changed:
            if self._model and ends_model(record):
                self._journal.begin()
                self._model, self._lost = False, ""
            for line in self._lines_of(record):
                self._keep(line)
            self._model = self._model or isinstance(record, ModelFacts)
            if isinstance(record, Ended):
                self._running.pop(record.request, None)
                self._failed.discard(record.request)
            elif isinstance(record, Failure):
                self._failed.add(record.request)

    def _lines_of(self, record: Record) -> list[bytes]:
        """A record, and before it the command that one who joins has to know."""
        found: Command | None = None
        if isinstance(record, ModelFacts):
            found = self._first(Load)
        elif isinstance(record, PromptOpened):
            found = self._first(Prefill)
        elif isinstance(record, Ended) and not record.cancelled and record.request not in self._failed:
            command = self._running.get(record.request)
            found = command if isinstance(command, Configure) else None
        return [*([] if found is None else [_encoded(found)]), _encoded(record)]

    def _first(self, kind: type[Command]) -> Command | None:
        return next((command for command in self._running.values() if isinstance(command, kind)), None)

    def _keep(self, line: bytes) -> None:
        try:
            self._journal.append(line)
        except OSError as error:  # no room on the disk: the engine goes on, and who comes back learns of it
            self._lost = error.strerror or str(error)
            if self._visitor is not None:
                self._visitor.dismiss(f"The engine can't keep its session: {self._lost}.")


def _encoded(message: Command | Record) -> bytes:
    """A message as a line; of a record that is too long, that it is."""
    try:
        return wire.encode(message) + b"\n"
    except WireError as error:
        request = message.id if isinstance(message, Command) else message.request
        words = f"An answer could not be sent: {error.message}"
        failure = Failure(type(message).__name__, words, error.hint, request=request)
        return wire.encode(failure) + b"\n"


# ---- the other end of ProcessLink --------------------------------------------------------------

END_SECONDS = 1.5


def serve_inherited(descriptor: int, program: str) -> None:
    """Serve the one connection that was inherited, then end the process at once.

    Args:
        descriptor: Of a connected socket.
        program: Version of the program.
    """
    status = 1
    try:
        server = EngineServer("", program)
        server.start()
        server.meet(socket.socket(fileno=descriptor))
        server.close(END_SECONDS)
        status = 0
    finally:
        os._exit(status)  # a thread that still uses MLX would abort the interpreter's own way out
