"""What is measured of a step's costs, how it is asked for, and the keys."""

from __future__ import annotations

from engine.protocol import (
    CompareKV,
    KVCompared,
    Measure,
    MeasureRoofline,
    Profile,
    Profiled,
    RooflineMeasured,
)
from inspector.session.controller import Controller
from inspector.session.requests import Job
from inspector.state.measured import Measured
from inspector.widgets.actions import Action, Needs, back, note, screen_table

# ---- what the engine is asked -------------------------------------------------------------------

PARTS, LAYERS, ROOFLINE, BITS = range(4)
"""The pages."""


class CostControl:
    """Asks for measurements of the step to come; what came of them is in the timeline.

    Args:
        controller: Sends the commands.
    """

    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self.job = Job(controller.client, Profile, MeasureRoofline, CompareKV)
        self._node: int | None = None

    @property
    def profiled(self) -> Profiled | None:
        """The parts of a step."""
        return self.controller.timeline.of(Measured).profiled

    @property
    def roofline(self) -> RooflineMeasured | None:
        """Prefill and decode against the machine's limits."""
        return self.controller.timeline.of(Measured).roofline

    @property
    def compared(self) -> KVCompared | None:
        """The KV cache at fewer bits."""
        return self.controller.timeline.of(Measured).compared

    @property
    def recorded(self) -> bool:
        """True if there is nobody to ask."""
        return self.controller.transport.recorded

    def enter(self) -> None:
        """Forget what was measured elsewhere; in a replay what was recorded last is shown, of whichever step."""
        if self.recorded:
            return
        if self._node != self.controller.timeline.tip:
            self._node = self.controller.timeline.tip
            measured = self.controller.timeline.of(Measured)
            measured.profiled = measured.roofline = measured.compared = None
            self.job.failures.clear()

    def want(self, *kinds: type[Measure]) -> None:
        """Ask for what is neither known, nor failed, nor under way; there is nobody to ask in a replay."""
        if self.recorded:
            return
        asked = {type(command) for command in self.job.commands}
        for kind in kinds:
            if not (self.known(kind) or kind.kind in self.job.failures or kind in asked):
                self.job.start(kind())

    def known(self, kind: type[Measure]) -> bool:
        """True if a measurement is there in full."""
        compared = self.compared is not None and self.compared.last
        found = {Profile: self.profiled is not None, MeasureRoofline: self.roofline is not None}
        return found.get(kind, compared)

    def again(self, *kinds: type[Measure]) -> None:
        """Measure again."""
        self.job.stop()
        self.job.start(*(kind() for kind in kinds))


# ---- keys ---------------------------------------------------------------------------------------

COST_SCREEN = screen_table(
    "While a step is taken apart",
    Action("costs.next_page", "Next page", "Show the next page, or the previous one.", lambda own: own.turn(1),
           hint="page", worth=9, place=-2),
    Action("costs.page_before", "Previous page", "Show the next page, or the previous one.", lambda own: own.turn(-1)),
    Action("costs.again", "Again", "Measure again; while that runs, stop it.", lambda own: own.measure_again(),
           Needs.ENGINE, hint=lambda own: "stop" if own.control.job.running else "again", worth=6),
    note("up down", "Scroll the page.", "scroll", 5, place=-1),
    note("pageup pagedown", "Scroll the page."),
    back("costs.leave", "Go back; a measurement stops."),
)  # fmt: skip
