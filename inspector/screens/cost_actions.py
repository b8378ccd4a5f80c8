"""Costs: the actions that open what measures beside the session."""

from __future__ import annotations

from inspector.screens.acting import Acting
from inspector.screens.controller import Controller
from inspector.screens.cost_control import CostControl
from inspector.screens.profile import BITS, PARTS, ProfileScreen
from inspector.screens.race import RaceScreen
from inspector.screens.race_control import RaceControl
from inspector.screens.sweep import SweepScreen
from inspector.screens.sweep_control import SweepControl


class CostActions(Acting):
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
