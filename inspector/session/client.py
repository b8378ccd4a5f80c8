"""The client of an engine, or of a recording: open requests, the inbox of records, and the one inlet for them."""

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
"""Classes of records that are received by their request alone."""
Severity = Literal["information", "warning", "error"]
SHARE = 6
"""Times its own length after a frame until the next: on a slow machine the engine comes first."""


class Backend(Protocol):
    """The live engine or a recording: takes commands, and hands out records in its own way."""

    def start(self) -> None:
        """Begin to take commands."""

    def send(self, sent: Sent) -> None:
        """Take a command: records with its id follow in order, closed by `Ended`. `Cancel` takes effect at once."""

    def close(self, timeout: float = 2.0) -> bool:
        """Cancel everything and end.

        Args:
            timeout: Seconds to wait.

        Returns:
            Whether it ended in time.
        """


class IdleBackend:
    """Answers nothing, for a session that is only shown."""

    def start(self) -> None:
        """Nothing must be started."""

    def send(self, sent: Sent) -> None:
        """The command is dropped."""

    def close(self, timeout: float = 2.0) -> bool:
        """Nothing must be ended."""
        return True


class SessionHost(Protocol):
    """The screen of a session."""

    def say(self, answer: str) -> None:
        """Answer the user, once the present action is done."""

    def announce(self, text: str, title: str, severity: Severity) -> None:
        """Show a notice that is no answer to a key; printable."""

    def redraw(self) -> None:
        """Show the changes now."""


class Request(Struct, Generic[Kind], eq=False):
    """One command that was sent, and the records that have its id."""

    command: Kind
    client: EngineClient
    id: int
    then: Then[Kind] | None = None
    """Called once it has ended."""
    each: Listener | None = None
    """Called with each record before."""
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
    """True if it is being cancelled; once it has ended, whether it was, rather than carried out."""

    def reply(self, kind: type[Reply]) -> Reply | None:
        """Its first record of a class; None if there is none."""
        return next((record for record in self.records if isinstance(record, kind)), None)

    def answer(self, kind: type[Reply]) -> Reply:
        """Its first record of a class.

        Raises:
            LookupError: There is none, with the reason.
        """
        if (found := self.reply(kind)) is not None:
            return found
        failed = self.failure.message.rstrip(".") if self.failure is not None else ""
        raise LookupError(failed or f"{self.command.kind} was not answered")

    def cancel(self) -> None:
        """Have the engine stop it; `then` is still called once it has ended."""
        if not (self.cancelled or self.done):
            self.cancelled = True
            self.client.backend.send(Sent(protocol.Cancel(self.id), self.client.next_id()))

    def leave(self) -> None:
        """Have the engine stop it; `then` is not called any more."""
        self.then = self.each = None
        self.cancel()

    def take(self, record: Record) -> None:
        """Take in one record of it."""
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
    """Sends commands, gives their records to the requests, and keeps the timeline.

    Args:
        backend: Takes the commands; it may be replaced.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.timeline = Timeline()
        self.requests: dict[int, Request[Any]] = {}
        """Commands that have not ended, by id, in the order in which they were sent."""
        self.next_id = count(1).__next__
        """Makes an id for a command."""
        self.answering = 0
        """Id of the command that the record which is being taken in answers; 0 for none."""
        self._listeners: dict[Listener, tuple[tuple[type[Record], ...], tuple[type[Command], ...]]] = {}
        """Each with the classes of records that it is called with, and of their commands; none for all."""
        self.runs: Callable[[], bool] = lambda: False
        """True if something runs by itself: a run of the engine, or a recording that plays."""

    # ---- records in -------------------------------------------------------------------------

    def receive(self, record: Record, id: int = 0) -> None:
        """Take in one record, live or recorded: all that is on show follows from these.

        Args:
            record: The record.
            id: Of the command that it answers.
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
        for listener, (kinds, of) in [*self._listeners.items()]:  # one of them may be ignored from here on
            answers = not of or (request is not None and isinstance(request.command, of))
            if answers and (not kinds or type(record) in kinds):
                listener(record)
        self.answering = before  # a listener may have had another record taken in

    def listen(self, listener: Listener, *kinds: type[Record], of: tuple[type[Command], ...] = ()) -> None:
        """Have records given to a listener, after the timeline and the request received them.

        Args:
            listener: Called with each.
            kinds: Classes of those that it is called with; none for all.
            of: Classes of the commands that they must answer; none for any.
        """
        self._listeners[listener] = kinds, of

    def ignore(self, listener: Listener) -> None:
        """Give a listener no more records, if it got any."""
        self._listeners.pop(listener, None)

    def note_running(self) -> None:
        """Have the timeline show whether something runs; this alone writes that.

        Called where that can change: with the beginning and end of a run, by what plays, and for another timeline.
        """
        self.timeline.running = self.runs()

    # ---- commands out -----------------------------------------------------------------------

    def request(
        self, command: Kind, then: Then[Kind] | None = None, each: Listener | None = None, hides: Hidden = ()
    ) -> Request[Kind]:
        """Send a command after those that are outstanding.

        Args:
            command: The command.
            then: Called once it has ended, however it did.
            each: Called with each record before, its progress and its failure among them.
            hides: Classes of its records that neither the timeline nor a listener receives.
        """
        request = Request(command, self, self.next_id(), then, each, hides)
        if not command.interleavable:
            self.cancel(*self.of(protocol.LookAhead))  # asked for while nothing else was to be done
        self.requests[request.id] = request
        self.backend.send(Sent(command, request.id))
        if isinstance(command, Run):
            self.note_running()
        return request

    def do(
        self, command: Kind, then: Then[Kind] | None = None, each: Listener | None = None, hides: Hidden = ()
    ) -> Request[Kind]:
        """Send a command as `request` does; the run, if there is one, pauses unless it can be answered meanwhile."""
        if not command.interleavable:
            self.pause()
        return self.request(command, then, each, hides)

    # ---- what is open -----------------------------------------------------------------------

    @property
    def outstanding(self) -> list[Command]:
        """Commands of the backend in their order, without the questions that it answers meanwhile."""
        return [each.command for each in self.requests.values() if not each.command.interleavable]

    def of(self, *kinds: type[Kind]) -> list[Request[Kind]]:
        """The open requests of some classes of commands, those that are being cancelled too."""
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
        """Stop the run and the steps that were queued, at the next step."""
        self.cancel(*self.of(Run, TakeStep))

    def stop(self) -> bool:
        """Cancel whatever escape stops; returns whether there was anything."""
        moving = (each for each in self.of(protocol.Configure) if each.command.node is not None)
        return self.cancel(*moving) | self.make_way()

    def make_way(self) -> bool:
        """Cancel what another prompt replaces, which settings outlast; returns whether there was anything."""
        return self.cancel(*(each for each in self.requests.values() if each.command.stoppable))

    def leave(self) -> None:
        """Cancel whatever the backend does: something else will be on show."""
        self.cancel(*(each for each in self.requests.values() if not each.command.interleavable))

    def forget(self) -> None:
        """Forget all open requests, if no backend will answer them."""
        self.requests = {}


class RecordInbox:
    """Holds what the engine's thread handed out until the screen has time for it, frame by frame.

    Args:
        receive: Takes in one record, and the id of the command that it answers.
        show: Shows what the records of a frame changed.
        open: Tells whether there is a screen to show them: not while the program is being left.
        soon: Has the screen's thread call something as soon as it can; called in the engine's thread.
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
        """Records that were not received yet."""
        self._due = 0.0
        """When the next frame may be shown, on the clock of `perf_counter`."""

    def emit(self, received: Received) -> None:
        """Take one record; called in the engine's thread."""
        self.waiting.append(received)
        record = received.record
        if isinstance(record, Ended) or (isinstance(record, protocol.LookedAhead) and record.last):
            # an asker may wait for what has ended, and the next tick is up to a frame away
            self._soon(self.drain)

    def tick(self) -> None:
        """Drain, unless the last frame was so dear that the engine should have the time."""
        began = perf_counter()
        if began >= self._due:
            self.drain()
            self._due = began + (perf_counter() - began) * SHARE

    def drain(self) -> None:
        """Bring everything that the engine handed out to the screen, if there is anything, and a screen."""
        if not self.waiting or not self._open():
            return
        with drawing:
            taken: list[Record] = []
            while self.waiting:
                received = self.waiting.popleft()
                taken.append(received.record)
                self._receive(received.record, received.id)
            self.show(taken)
