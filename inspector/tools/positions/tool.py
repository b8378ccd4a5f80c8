"""Positions as a tool."""

from __future__ import annotations

from dataclasses import replace

from engine.protocol import PositionTried
from inspector.main.inside.keys import SCROLLS, inside_table, walking
from inspector.main.tool import LOOK, Host, Tool, ToolActions
from inspector.session.requests import Replies
from inspector.tools.positions.choices import PositionChoices
from inspector.tools.positions.trials import key_of
from inspector.widgets.actions import Action, Needs, both


class PositionsActions(ToolActions):
    """Opens the screen, and keeps what it was told."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.answers = Replies(host.controller.client, PositionTried, key_of)
        self.choices = PositionChoices()

    def open(self) -> None:
        """Look at the position of the selected token."""
        from inspector.tools.positions.screen import PositionsScreen

        self.open_screen(PositionsScreen(self.host, self.answers, self.choices))


POSITIONS_SCREEN = inside_table(
    "In the positions",
    *both(("positions.above", "positions.below"), ("Row above", "Row below"),
          "Look at another what-if: its candidates before and after stand under the table.",
          lambda own, by: own.turn_row(by), hint="what if", worth=7),
    *both(("positions.less", "positions.more"), ("Less", "More"), "Tell it a position less or more.",
          lambda own, by: own.shift(by), hint="another offset", worth=4),
    *walking(),
    replace(SCROLLS, help="Scroll the page."),
)  # fmt: skip
POSITIONS = Tool(
    "positions",
    "Positions",
    PositionsActions,
    screen=True,
    family="inside",
    actions=(
        Action("positions", "Positions",
            "Show how this token is told its position, and what a wrong offset or no causal mask would do.",
            PositionsActions.open, Needs.DISTRIBUTION | Needs.ENGINE, recorded=lambda own: own.answers.any, group=LOOK,
            synonyms="embedding embeddings rope rotary position encoding"),
    ),
    owners=(POSITIONS_SCREEN,),
)  # fmt: skip
