"""Stepping and running: the actions of the first group of keys."""

from __future__ import annotations

from inspector.main.acting import PanelScreen
from inspector.main.status import pace_text
from inspector.state.timeline import Phase


class Stepping(PanelScreen):
    """Takes steps."""

    def action_step(self) -> None:
        """Step, walk forward or pause."""
        self.answer(self.controller.step())

    def action_run(self) -> None:
        """Run or pause."""
        self.answer(self.controller.run())

    def action_pace(self, by: int) -> None:
        """Change the pace of runs; in a prefill, the size of its chunks."""
        controller = self.controller
        if controller.timeline.phase is Phase.PREFILL:
            self.answer(controller.prefilling.resize(controller.timeline, by))
            return
        controller.change_pace(by)
        self.answer(
            "" if self.controller.timeline.running else f"Runs go at {pace_text(self.controller.pace)}"
        )
