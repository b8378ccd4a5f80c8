"""Positions as a tool: the key that opens their screen."""

from __future__ import annotations

from inspector.main.tool import Tool
from inspector.tools.positions.control import POSITIONS_SCREEN, PositionsActions
from inspector.widgets.actions import Action, Needs


def _open(own: PositionsActions) -> None:
    from inspector.tools.positions.screen import PositionsScreen

    own.open_screen(PositionsScreen(own))


POSITIONS = Tool(
    "positions",
    "Positions",
    PositionsActions,
    actions=(
        Action("positions", "Positions",
            "Show how this token is given its position, and what a wrong offset or no causal mask would do.",
            _open, Needs.DISTRIBUTION | Needs.ENGINE, recorded=lambda own: own.answers.any, looks=True,
            synonyms="rope, rotary embedding, position encoding, positional embedding, causal mask", view="position"),
    ),
    owners=(POSITIONS_SCREEN,),
    exports=("inspector.tools.positions.evidence:POSITIONS_PART",),
)  # fmt: skip
