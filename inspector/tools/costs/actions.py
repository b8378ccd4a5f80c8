"""Costs: the actions that open what measures beside the session."""

from __future__ import annotations

from inspector.main.acting import PanelScreen
from inspector.session.controller import Controller
from inspector.tools.costs.control import CostControl
from inspector.tools.costs.screen import BITS, PARTS, ProfileScreen
from inspector.tools.race.control import RaceControl
from inspector.tools.race.screen import RaceScreen
from inspector.tools.sweeps.control import SweepControl
from inspector.tools.sweeps.screen import SweepScreen


class CostActions(PanelScreen):
    """Measures what tokens cost."""

    def __init__(self, controller: Controller) -> None:
        super().__init__(controller)
        self.racing = RaceControl(controller)
        self.costs = CostControl(controller)
        self.sweeping = SweepControl(controller)

    def action_race(self) -> None:
        """Open the race; one that was paused goes on there."""
        self.controller.pause()
        self.answer()
        self.app.push_screen(RaceScreen(self.racing))

    def action_profile(self) -> None:
        """Take the step to come apart."""
        self._measure(PARTS)

    def action_compare_kv(self) -> None:
        """Compare the KV cache with quantized ones."""
        self._measure(BITS)

    def _measure(self, page: int) -> None:
        self.controller.pause()
        self.answer()
        self.app.push_screen(ProfileScreen(self.costs, page))

    def action_sweep(self) -> None:
        """Open the sweeps."""
        if self.controller.timeline.facts is None:
            self.answer("There is no model to measure yet")
            return
        self.controller.pause()
        self.answer()
        self.app.push_screen(SweepScreen(self.sweeping))
