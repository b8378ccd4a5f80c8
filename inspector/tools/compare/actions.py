"""Comparing: the action that sets the current path against another branch."""

from __future__ import annotations

from engine.commands import MoveTo
from inspector.main.acting import PanelScreen
from inspector.tools.compare.comparison import nearest
from inspector.tools.compare.screen import ALONE, ComparedPlace, CompareScreen


class Comparing(PanelScreen):
    """Compares branches."""

    def action_compare(self) -> None:
        """Compare the current path with the branch that parts from it nearest."""
        other = nearest(self.controller.timeline)
        if other is None:
            self.answer(ALONE)
        else:
            self.answer()
            self.app.push_screen(CompareScreen(self.controller, other), self._compared)

    def _compared(self, place: ComparedPlace | None) -> None:
        """Look at the token that was chosen, on its branch."""
        if place is None:
            return
        if place.tip is None:
            self.controller.timeline.select(place.slot)
            self.answer()
        else:
            self.controller.timeline.expect(place.slot)
            self.controller.do(MoveTo(place.tip))
            self.answer()
