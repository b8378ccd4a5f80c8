"""What goes to a backend and comes back: commands that are outstanding, and the one inlet for records."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeVar

from engine.protocol import Cancel, Command, Ended, Failure, Load, Loading, LookAhead, Record, Run, TakeStep
from inspector.session.backend import Backend
from inspector.state.timeline import Timeline

Kind = TypeVar("Kind", bound=Command)


class EngineClient:
    """Sends commands, knows which of them are outstanding, and keeps the timeline.

    Args:
        backend: Takes the commands; another one may take its place.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.timeline = Timeline()
        self.outstanding: deque[Command] = deque()
        """Sent and not ended, in the order in which the backend does them."""
        self.intercept: Callable[[Record], bool] = lambda record: False
        """Asked about each record first; what it takes goes no further."""
        self.parts: list[Callable[[Record], None]] = []
        """Called with each record after the timeline took it in, while the command that it ends is outstanding."""
        self.listeners: list[Callable[[Record], None]] = []
        """Called last, when what ended is no longer outstanding."""
        self.runs: Callable[[], bool] = lambda: False
        """Tells whether something goes on by itself: a run of the engine, or a recording that plays."""
        self._cancelled: set[int] = set()

    # ---- records in -------------------------------------------------------------------------

    def receive(self, record: Record) -> None:
        """Take in one record, live or recorded: all that is on show follows from these."""
        if self.intercept(record):
            return
        if self.timeline.facts is not None and _ends_model(record):
            self.timeline = Timeline()
        self.timeline.apply(record)
        for part in tuple(self.parts):  # a lesson that is left takes its own away
            part(record)
        if isinstance(record, Ended):
            self._end(record)
        self.note_running()
        for listener in tuple(self.listeners):  # a screen that is left takes its own away
            listener(record)

    def _end(self, ended: Ended) -> None:
        self._cancelled.discard(ended.id)
        if (command := self.find(ended.id)) is not None:
            self.outstanding.remove(command)

    def note_running(self) -> None:
        """Have the timeline show whether something runs: nobody else writes that."""
        self.timeline.running = self.runs()

    # ---- commands out -----------------------------------------------------------------------

    @property
    def doing(self) -> Command | None:
        """The command that the backend is at, None while it waits."""
        return self.outstanding[0] if self.outstanding else None

    def find(self, id: int) -> Command | None:
        """The outstanding command of a number."""
        return next((command for command in self.outstanding if command.id == id), None)

    def of(self, *kinds: type[Kind]) -> list[Kind]:
        """The outstanding commands of some classes, those that were cancelled too."""
        return [command for command in self.outstanding if isinstance(command, kinds)]

    def under_way(self, *kinds: type[Kind]) -> list[Kind]:
        """The outstanding commands of some classes that were not cancelled."""
        return [command for command in self.of(*kinds) if command.id not in self._cancelled]

    def ask(self, command: Command) -> None:
        """Send a question that needs no forward: nothing waits for it."""
        self.backend.send(command)

    def send(self, command: Command) -> None:
        """Send a command after those that are outstanding."""
        self.cancel(*self.of(LookAhead))  # asked for while nothing else was to be done
        self.outstanding.append(command)
        self.backend.send(command)
        self.note_running()

    def do(self, command: Command) -> None:
        """Pause the run, if there is one, and send a command."""
        self.pause()
        self.send(command)

    # ---- stopping ---------------------------------------------------------------------------

    def cancel(self, *found: Command) -> bool:
        """Cancel commands, outstanding ones or questions; returns whether there were any."""
        for command in found:
            if command.id not in self._cancelled:
                self._cancelled.add(command.id)
                self.backend.send(Cancel(command.id))
        return bool(found)

    def pause(self) -> None:
        """Stop the run and the steps that were queued, at the next step."""
        self.cancel(*self.of(Run), *self.of(TakeStep))

    def stop(self) -> bool:
        """Cancel whatever escape stops; returns whether there was anything."""
        return self.cancel(*(command for command in self.outstanding if command.stoppable))

    def make_way(self) -> None:
        """Cancel what another model or another prompt replaces."""
        self.cancel(*(each for each in self.outstanding if each.stoppable or isinstance(each, Load)))

    def leave(self) -> None:
        """Cancel whatever the backend does: something else will be on show."""
        self.cancel(*self.outstanding)


def _ends_model(record: Record) -> bool:
    """Whether the engine let go of the model that it had: another is on its way, or failed to come."""
    return isinstance(record, Loading) or (isinstance(record, Failure) and record.command == Load.kind)
