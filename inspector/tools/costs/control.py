"""What was measured of a step, asked for once for each place where the session stands."""

from __future__ import annotations

from engine.commands import CompareKV, Measure, MeasureRoofline, Profile
from engine.records import KVCompared, Profiled, Record, RooflineMeasured
from inspector.session.controller import Controller
from inspector.session.job import Job


class CostControl:
    """Asks for measurements of the step to come and keeps what came of them.

    Args:
        controller: Sends the commands.
    """

    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self.job = Job(controller.client, Profile, MeasureRoofline, CompareKV)
        self.profiled: Profiled | None = None
        self.roofline: RooflineMeasured | None = None
        self.compared: KVCompared | None = None
        self._node: int | None = None

    def enter(self) -> None:
        """Forget what was measured elsewhere."""
        if self._node != self.controller.timeline.tip:
            self._node = self.controller.timeline.tip
            self.profiled = self.roofline = self.compared = None
            self.job.failures.clear()

    def want(self, *kinds: type[Measure]) -> None:
        """Ask for what is neither known, nor failed, nor under way."""
        asked = {type(command) for command in self.job.commands}
        for kind in kinds:
            if not (self.known(kind) or kind.kind in self.job.failures or kind in asked):
                self.job.start(kind())

    def known(self, kind: type[Measure]) -> bool:
        """Whether a measurement is there in full."""
        compared = self.compared is not None and self.compared.last
        found = {Profile: self.profiled is not None, MeasureRoofline: self.roofline is not None}
        return found.get(kind, compared)

    def again(self, *kinds: type[Measure]) -> None:
        """Measure again."""
        self.job.stop()
        self.job.start(*(kind() for kind in kinds))

    def receive(self, record: Record) -> None:
        """Take in one record."""
        self.job.receive(record)
        match record:
            case Profiled():
                self.profiled = record
            case RooflineMeasured():
                self.roofline = record
            case KVCompared():
                self.compared = record
            case _:
                pass
