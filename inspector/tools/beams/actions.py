"""Beam search: the action that opens its screen, and goes where that leads."""

from __future__ import annotations

from inspector.main.acting import PanelScreen
from inspector.session.controller import Controller
from inspector.tools.beams.control import BeamControl
from inspector.tools.beams.screen import BeamScreen


class BeamActions(PanelScreen):
    """Searches with beams."""

    def __init__(self, controller: Controller) -> None:
        super().__init__(controller)
        self.beams = BeamControl(controller)

    def action_beams(self) -> None:
        """Open the beam search; a search that waits goes on there."""
        self.controller.pause()
        self.answer()
        self.app.push_screen(BeamScreen(self.beams), self._beamed)

    def _beamed(self, node: int | None) -> None:
        """Stand at the end of the beam that was chosen."""
        if node is not None:
            self.beams.go(node)
        waits = self.beams.search is not None and not self.beams.search.over
        self.answer("The beam search waits: B goes on with it" if waits and node is None else "")
