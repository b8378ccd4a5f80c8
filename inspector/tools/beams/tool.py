"""Beam search as a tool: the key that opens its screen."""

from __future__ import annotations

from inspector.main.tool import Tool
from inspector.state.beams import BeamHistory
from inspector.tools.beams.control import BEAM_FORM, BEAM_SCREEN, BeamActions
from inspector.widgets.actions import Action, Needs


def _open(own: BeamActions) -> None:
    """Open the beam search; a search that waits continues there."""
    from inspector.tools.beams.screen import BeamScreen

    own.open_screen(BeamScreen(own.host, own), own.left)


BEAMS = Tool(
    "beams",
    "Beam search",
    BeamActions,
    actions=(
        Action("beams", "Beam search",
            "Follow several continuations at once from the selected token, step by step or to the end; a paused "
            "search continues.", _open, Needs.DISTRIBUTION | Needs.ENGINE,
            recorded=lambda own: own.timeline.of(BeamHistory).search is not None, hint="beams", worth=2, place=110,
            synonyms="beams, n best, hypotheses, search for the most probable text", view="beams"),
    ),
    owners=(BEAM_FORM, BEAM_SCREEN),
    exports=("inspector.tools.beams.evidence:BEAMS_PART",),
)  # fmt: skip
