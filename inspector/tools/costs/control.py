"""What was measured of a step, asked for once for each place where the session stands."""

from __future__ import annotations

from engine.commands import CompareKV, Measure, MeasureRoofline, Profile
from engine.records import Ended, Failure, KVCompared, Measuring, Profiled, Record, RooflineMeasured
from inspector.session.controller import Controller

COMMANDS: tuple[type[Measure], ...] = (Profile, MeasureRoofline, CompareKV)


class CostControl:
    """Asks for measurements of the step to come and keeps what came of them.

    Args:
        controller: Sends the commands.
    """

    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self.profiled: Profiled | None = None
        self.roofline: RooflineMeasured | None = None
        self.compared: KVCompared | None = None
        self.failures: dict[str, Failure] = {}
        """By the command that failed."""
        self.measuring: Measuring | None = None
        self._node: int | None = None

    @property
    def out(self) -> list[Measure]:
        """What is asked for and neither ended nor cancelled."""
        return [
            command
            for command in self.controller.outstanding
            if isinstance(command, COMMANDS) and not command.cancel.is_set()
        ]

    def enter(self) -> None:
        """Forget what was measured elsewhere."""
        if self._node != self.controller.timeline.tip:
            self._node = self.controller.timeline.tip
            self.profiled = self.roofline = self.compared = None
            self.failures = {}

    def want(self, *kinds: type[Measure]) -> None:
        """Ask for what is neither known, nor failed, nor under way."""
        for kind in kinds:
            known = self.known(kind)
            if not known and kind.__name__ not in self.failures and not self._asked(kind):
                self.controller.do(kind())

    def known(self, kind: type[Measure]) -> bool:
        """Whether a measurement is there in full."""
        compared = self.compared is not None and self.compared.last
        found = {Profile: self.profiled is not None, MeasureRoofline: self.roofline is not None}
        return found.get(kind, compared)

    def _asked(self, kind: type[Measure]) -> bool:
        return any(isinstance(command, kind) for command in self.out)

    def again(self, *kinds: type[Measure]) -> None:
        """Measure anew."""
        self.stop()
        for kind in kinds:
            self.failures.pop(kind.__name__, None)
            self.controller.do(kind())

    def stop(self) -> bool:
        """Break off what is under way; returns whether anything was."""
        found = self.out
        for command in found:
            command.cancel.set()
        return bool(found)

    def receive(self, record: Record) -> None:
        """Take in one record."""
        match record:
            case Measuring(command=command) if command in _NAMES:
                self.measuring = record
            case Profiled():
                self.profiled = record
            case RooflineMeasured():
                self.roofline = record
            case KVCompared():
                self.compared = record
            case Failure(command=command) if command in _NAMES:
                self.failures[command] = record
            case Ended(command=command) if command in _NAMES:
                self.measuring = None
            case _:
                pass


_NAMES = frozenset(kind.__name__ for kind in COMMANDS)
