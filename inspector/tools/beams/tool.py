"""Beam search as a tool: the key that opens its screen."""

from __future__ import annotations

from inspector.keys import key_for
from inspector.main.evidence import ExportPart
from inspector.main.tool import Host, Tool, ToolActions
from inspector.state.beams import BeamHistory
from inspector.tools.beams.control import BEAM_FORM, BEAM_SCREEN, BeamControl
from inspector.widgets.actions import Action, Needs


class BeamActions(ToolActions):
    """Searches with beams."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.control = BeamControl(host.controller)

    def open(self) -> None:
        """Open the beam search; a search that waits goes on there."""
        from inspector.tools.beams.screen import BeamScreen

        self.open_screen(BeamScreen(self.host, self.control), self._left)

    def _left(self, node: int | None) -> None:
        """Go to the end of the beam that was chosen."""
        if node is not None:
            self.control.go(node)
        search, recorded = self.control.search, self.controller.transport.recorded
        waits = search is not None and not search.over and not recorded
        self.host.answer(
            f"The beam search is paused: {key_for('beams')} continues it" if waits and node is None else ""
        )


def _exports() -> tuple[ExportPart, ...]:
    from inspector.tools.beams.evidence import BEAMS_PART

    return (BEAMS_PART,)


BEAMS = Tool(
    "beams",
    "Beam search",
    BeamActions,
    screen=True,
    actions=(
        Action("beams", "Beam search",
            "Follow several continuations at once from the selected token, step by step or to the end; a paused "
            "search continues.", BeamActions.open, Needs.DISTRIBUTION | Needs.ENGINE,
            recorded=lambda own: own.timeline.of(BeamHistory).search is not None, hint="beams", worth=2, place=110,
            synonyms="beams, n best, hypotheses, search for the most probable text", view="beams"),
    ),
    owners=(BEAM_FORM, BEAM_SCREEN),
    exports=_exports,
)  # fmt: skip
