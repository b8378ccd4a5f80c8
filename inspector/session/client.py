"""The client of an engine or a recording: open requests, the inbox of records, and the one place that receives
them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from time import perf_counter
from typing import Any, Generic, Literal, Protocol, TypeVar

from msgspec import Struct, field

from engine import protocol
from engine.protocol import Command, Ended, Failure, Received, Record, Run, Sent, TakeStep
from engine.timing import drawing
from inspector.state.timeline import Timeline

Kind = TypeVar("Kind", bound=Command)
Reply = TypeVar("Reply", bound=Record)
Listener = Callable[[Record], object]
Then = Callable[["Request[Kind]"], object]
Hidden = tuple[type[Record], ...]
"""Classes of records that only their request receives."""
Severity = Literal["information", "warning", "error"]
SHARE = 6
"""Minimum pause after a frame, as a multiple of its duration: on a slow machine the engine has priority."""


class Backend(Protocol):
    """The live engine or a recording: takes commands and emits records."""

    def start(self) -> None:
        """Start taking commands."""

    def send(self, sent: Sent) -> None:
        """Take a command; records with its id follow in order, the last is `Ended`. `Cancel` takes effect at once."""

    def close(self, timeout: float = 2.0) -> bool:
        """Cancel everything and end.

        Args:
            timeout: Seconds to wait.

        Returns:
            Whether it ended in time.
        """


class IdleBackend:
    """A backend that answers nothing, for a session that is only shown."""

    def start(self) -> None:
        """Do nothing."""

    def send(self, sent: Sent) -> None:
        """Drop the command."""

    def close(self, timeout: float = 2.0) -> bool:
        """Do nothing."""
        return True


class SessionHost(Protocol):
    """The screen of a session."""

    def say(self, answer: str) -> None:
        """Show an answer to the user once the current action is done."""

    def announce(self, text: str, title: str, severity: Severity) -> None:
        """Show a notification that doesn't answer a key; the text is printable."""

    def redraw(self) -> None:
        """Show the changes now."""


class Request(Struct, Generic[Kind], eq=False):
    """One command that was sent, with the records that answer it."""

    command: Kind
    client: EngineClient
    id: int
    then: Then[Kind] | None = None
    """Called once it has ended."""
    each: Listener | None = None
    """Called with each record except `Ended`."""
    hides: Hidden = ()
    """Classes of records that only this request receives."""
    records: list[Record] = field(default_factory=list)
    """The records, if `then` or `each` waits for them."""
    failure: Failure | None = None
    progress: protocol.Measuring | None = None
    """Its progress, if the engine reports it."""
    done: bool = False
    """True if it has ended."""
    cancelled: bool = False
    """True while it is being cancelled; after its end, True if it was cancelled instead of carried out."""

    def reply(self, kind: type[Reply]) -> Reply | None:
        """Its first record of a class; None if there is none."""
        return next((record for record in self.records if isinstance(record, kind)), None)

    def answer(self, kind: type[Reply]) -> Reply:
        """The first record of a class.

        Raises:
            LookupError: There is none; the message is the reason.
        """
        if (found := self.reply(kind)) is not None:
            return found
        failed = self.failure.message.rstrip(".") if self.failure is not None else ""
        raise LookupError(failed or f"{self.command.kind} was not answered")

    def cancel(self) -> None:
        """Ask the engine to stop it; `then` is still called when it has ended."""
        if not (self.cancelled or self.done):
            self.cancelled = True
            self.client.backend.send(Sent(protocol.Cancel(self.id), self.client.next_id()))

    def leave(self) -> None:
        """Ask the engine to stop it; `then` and `each` are not called any more."""
        self.then = self.each = None
        self.cancel()

    def take(self, record: Record) -> None:
        """Receive one record that answers it."""
        match record:
            case Ended():
                self.done, self.cancelled = True, record.cancelled
                if self.then is not None:
                    self.then(self)
                return
            case Failure():
                self.failure = record
            case protocol.Measuring():
                self.progress = record
            case _ if self.then is not None or self.each is not None:
                self.records.append(record)
        if self.each is not None:
            self.each(record)


class EngineClient:
    """Sends commands, passes their records to the requests, and updates the timeline.

    Args:
        backend: Takes the commands; it may be replaced.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.timeline = Timeline()
        self.requests: dict[int, Request[Any]] = {}
        """Open requests by id, in the order in which they were sent."""
        self.next_id = count(1).__next__
        """Returns the id for the next command."""
        self.answering = 0
        """Id of the command that the record being received answers; 0 for none."""
        self._listeners: dict[Listener, tuple[tuple[type[Record], ...], tuple[type[Command], ...]]] = {}
        """Listeners with the classes of records, and of answered commands, that they are called for; empty for all."""
        self.runs: Callable[[], bool] = lambda: False
        """Returns True while an engine's run is under way or a recording plays."""

    # ---- records in -------------------------------------------------------------------------

    def receive(self, record: Record, id: int = 0) -> None:
        """Receive one live or recorded record; the state of the screen depends on these alone.

        Args:
            record: The record.
            id: Id of the command that it answers; 0 for none.
        """
        request, before = self.requests.get(id), self.answering
        self.answering = id
        if request is not None and isinstance(record, request.hides):
            request.take(record)
            return
        ends = isinstance(record, protocol.Loading | Failure) and protocol.ends_model(record)
        if ends and self.timeline.facts is not None:
            self.timeline = Timeline()
            self.note_running()
        self.timeline.apply(record)
        if request is not None:
            if isinstance(record, Ended):
                del self.requests[id]
                if isinstance(request.command, Run):
                    self.note_running()
            request.take(record)
        for listener, (kinds, of) in [*self._listeners.items()]:  # a copy: a listener may remove one
            answers = not of or (request is not None and isinstance(request.command, of))
            if answers and (not kinds or type(record) in kinds):
                listener(record)
        self.answering = before  # a listener may call `receive` itself

    def listen(self, listener: Listener, *kinds: type[Record], of: tuple[type[Command], ...] = ()) -> None:
        """Call a listener with records, after the timeline and the request have received them.

        Args:
            listener: The listener.
            kinds: Classes of records to call it with; all if empty.
            of: Classes of commands that the records must answer; any if empty.
        """
        self._listeners[listener] = kinds, of

    def ignore(self, listener: Listener) -> None:
        """Remove a listener, if it is one."""
        self._listeners.pop(listener, None)

    def note_running(self) -> None:
        """Update `running` of the timeline, which is set only here.

        Called whenever it can change: when a run begins or ends, a recording plays or pauses, or the timeline is new.
        """
        self.timeline.running = self.runs()

    # ---- commands out -----------------------------------------------------------------------

    def request(
        self, command: Kind, then: Then[Kind] | None = None, each: Listener | None = None, hides: Hidden = ()
    ) -> Request[Kind]:
        """Send a command, to be carried out after those that are outstanding.

        Args:
            command: The command.
            then: Called when it has ended, also if it failed or was cancelled.
            each: Called with each record before that, including progress and failure.
            hides: Classes of its records that neither the timeline nor a listener receives.
        """
        request = Request(command, self, self.next_id(), then, each, hides)
        if not command.interleavable:
            self.cancel(*self.of(protocol.LookAhead))  # look-ahead only runs while nothing else is requested
        self.requests[request.id] = request
        self.backend.send(Sent(command, request.id))
        if isinstance(command, Run):
            self.note_running()
        return request

    def do(
        self, command: Kind, then: Then[Kind] | None = None, each: Listener | None = None, hides: Hidden = ()
    ) -> Request[Kind]:
        """Send a command as `request` does; a run is paused unless the command can be answered between its steps."""
        if not command.interleavable:
            self.pause()
        return self.request(command, then, each, hides)

    # ---- what is open -----------------------------------------------------------------------

    @property
    def outstanding(self) -> list[Command]:
        """Open commands in order, without those that are answered between the steps of others."""
        return [each.command for each in self.requests.values() if not each.command.interleavable]

    def of(self, *kinds: type[Kind]) -> list[Request[Kind]]:
        """The open requests of some classes of commands, including those that are being cancelled."""
        return [each for each in self.requests.values() if isinstance(each.command, kinds)]

    def under_way(self, *kinds: type[Kind]) -> list[Request[Kind]]:
        """The open requests of some classes of commands that are not being cancelled."""
        return [each for each in self.of(*kinds) if not each.cancelled]

    # ---- stopping ---------------------------------------------------------------------------

    def cancel(self, *found: Request[Any]) -> bool:
        """Cancel requests; returns whether there were any."""
        for request in found:
            request.cancel()
        return bool(found)

    def pause(self) -> None:
        """Stop the run and the queued steps at the next step."""
        self.cancel(*self.of(Run, TakeStep))

    def stop(self) -> bool:
        """Cancel everything that escape stops; returns whether there was anything."""
        moving = (each for each in self.of(protocol.Configure) if each.command.node is not None)
        return self.cancel(*moving) | self.make_way()

    def make_way(self) -> bool:
        """Cancel what a new prompt or model replaces, which excludes settings; returns whether there was anything."""
        return self.cancel(*(each for each in self.requests.values() if each.command.stoppable))

    def leave(self) -> None:
        """Cancel everything the backend does, before a different session is shown."""
        self.cancel(*(each for each in self.requests.values() if not each.command.interleavable))

    def forget(self) -> None:
        """Drop all open requests, which no backend will answer any more."""
        self.requests = {}


class RecordInbox:
    """Queues the records from the engine's thread until the next frame of the screen.

    Args:
        receive: Receives one record, and the id of the command that it answers.
        show: Redraws what the records of a frame changed.
        open: Returns True while there is a screen; False while the program exits.
        soon: Schedules a call in the screen's thread as soon as possible; called in the engine's thread.
    """

    def __init__(
        self,
        receive: Callable[[Record, int], None],
        show: Callable[[Sequence[Record]], None],
        open: Callable[[], bool],
        soon: Callable[[Callable[[], None]], object],
    ) -> None:
        self._receive, self.show, self._open, self._soon = receive, show, open, soon
        self.waiting: deque[Received] = deque()
        """Records that haven't been received yet."""
        self._due = 0.0
        """Earliest time of the next frame, in seconds of `perf_counter`."""

    def emit(self, received: Received) -> None:
        """Queue one record; called in the engine's thread."""
        self.waiting.append(received)
        record = received.record
        if isinstance(record, Ended) or (isinstance(record, protocol.LookedAhead) and record.last):
            # a caller may be waiting for the end, and the next tick is up to a frame away
            self._soon(self.drain)

    def tick(self) -> None:
        """Drain, unless the last frame took so long that the engine should get the time."""
        began = perf_counter()
        if began >= self._due:
            self.drain()
            self._due = began + (perf_counter() - began) * SHARE

    def drain(self) -> None:
        """Receive and show all queued records, if there are any and there is a screen."""
        if not self.waiting or not self._open():
            return
        with drawing:
            taken: list[Record] = []
            while self.waiting:
                received = self.waiting.popleft()
                taken.append(received.record)
                self._receive(received.record, received.id)
            self.show(taken)
