"""Costs: the actions that open what measures beside the session."""

from __future__ import annotations

from inspector.screens.acting import Acting
from inspector.screens.controller import Controller
from inspector.screens.race import RaceScreen
from inspector.screens.race_control import RaceControl


class CostActions(Acting):
    """Measures what tokens cost."""

    def __init__(self, controller: Controller) -> None:
        super().__init__(controller)
        self.racing = RaceControl(controller)

    def action_race(self) -> None:
        """Open the race; one that was paused goes on there."""
        self.controller.pause()
        self.answer()
        self.app.push_screen(RaceScreen(self.racing))
