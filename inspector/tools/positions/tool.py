"""Positions as a tool: the key that opens their screen."""

from __future__ import annotations

from engine.protocol import PositionTried
from inspector.main.evidence import ExportPart
from inspector.main.tool import Host, Tool, ToolActions
from inspector.session.requests import Replies
from inspector.tools.positions.control import POSITIONS_SCREEN, PositionChoices
from inspector.widgets.actions import Action, Needs


class PositionsActions(ToolActions):
    """Opens the screen, and keeps the answers of the engine."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.answers = Replies(host.controller.client, PositionTried)
        self.choices = PositionChoices()

    def open(self) -> None:
        """Look at the position of the selected token."""
        from inspector.tools.positions.screen import PositionsScreen

        self.open_screen(PositionsScreen(self.host, self.answers, self.choices))


def _exports() -> tuple[ExportPart, ...]:
    from inspector.tools.positions.evidence import POSITIONS_PART

    return (POSITIONS_PART,)


POSITIONS = Tool(
    "positions",
    "Positions",
    PositionsActions,
    screen=True,
    actions=(
        Action("positions", "Positions",
            "Show how this token is given its position, and what a wrong offset or no causal mask would do.",
            PositionsActions.open, Needs.DISTRIBUTION | Needs.ENGINE, recorded=lambda own: own.answers.any, looks=True,
            synonyms="rope, rotary embedding, position encoding, positional embedding, causal mask", view="position"),
    ),
    owners=(POSITIONS_SCREEN,),
    exports=_exports,
)  # fmt: skip
