"""Breakpoints: the actions that set them, skip over sure tokens, and go from landmark to landmark."""

from __future__ import annotations

from engine.breakpoints import Breakpoints
from engine.errors import EngineError
from inspector.config.saved_breakpoints import SavedBreakpoints
from inspector.display import visible
from inspector.main.acting import PanelScreen
from inspector.state.breakpoints import conditions
from inspector.tools.breakpoints.dialog import BreakpointsDialog
from inspector.tools.breakpoints.landmarks import FORK, SURPRISE, go


class BreakActions(PanelScreen):
    """Sets where runs stop, and goes to where the model was unsure."""

    def action_breakpoints(self) -> None:
        """Ask for breakpoints."""
        points, problems = self.controller.breaks.points, SavedBreakpoints().read().problems
        self.app.push_screen(BreakpointsDialog(points, problems), self._break_at)

    def _break_at(self, points: Breakpoints | None) -> None:
        if points is not None:
            self.controller.break_at(points)
            self.answer(f"{_told(points)}{_kept(points)}")

    def action_skip(self) -> None:
        """Run over sure tokens, or pause."""
        self.answer(self.controller.run(over_sure=True))

    def action_surprise(self, by: int) -> None:
        """Look at the surprise before or after."""
        self.answer(go(self.controller.timeline, SURPRISE, by))

    def action_fork(self, by: int) -> None:
        """Look at the fork point before or after."""
        self.answer(go(self.controller.timeline, FORK, by))


def _told(points: Breakpoints) -> str:
    if not points.active:
        return "No breakpoints are set"
    return f"Runs stop at {conditions(points)}. Press r to run"


def _kept(points: Breakpoints) -> str:
    """Keep the breakpoints for the next start; returns what went wrong, or became of a damaged file."""
    try:
        return visible(SavedBreakpoints().save(points))
    except EngineError as error:
        return f". Not remembered: {visible(str(error))}"
