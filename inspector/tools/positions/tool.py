"""Positions as a tool."""

from __future__ import annotations

from engine.protocol import PositionTried
from inspector.keys import KEYS
from inspector.main.inside.help import SHARED, WALK
from inspector.main.tool import LOOK, HelpSection, Host, Key, Needs, Tool, ToolActions
from inspector.session.requests import Replies
from inspector.tools.positions.choices import PositionChoices
from inspector.tools.positions.trials import key_of


class PositionsActions(ToolActions):
    """Opens the screen, and keeps what it was told."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.answers = Replies(host.controller.client, PositionTried, key_of)
        self.choices = PositionChoices()

    def open(self) -> None:
        """Look at the position of the selected token."""
        from inspector.tools.positions.screen import PositionsScreen

        self.controller.client.pause()
        self.host.answer()
        self.host.open(PositionsScreen(self.host, self.answers, self.choices))


POSITIONS = Tool(
    "positions",
    "Positions",
    PositionsActions,
    screen=True,
    family="inside",
    keys=(
        Key("positions", *KEYS["positions"], "Positions", LOOK,
            "Show how this token is told its position, and what a wrong offset or no causal mask would do.",
            PositionsActions.open, Needs.DISTRIBUTION | Needs.ENGINE, recorded=lambda own: own.answers.any),
    ),
    help=(
        HelpSection(
            "In the positions",
            (
                ("`↑` `↓`", "Look at another what-if: its candidates before and after stand under the table."),
                ("`-` `+`", "Tell it a position less or more."),
                WALK,
                ("`pgup` `pgdn`", "Scroll the page."),
                *SHARED,
            ),
        ),
    ),
)  # fmt: skip
