"""Positions as a tool: its keys, what is kept from opening to opening, and the answers of the engine."""

from __future__ import annotations

from dataclasses import field, replace

from engine.frozen import slotted
from engine.protocol import PositionTried
from inspector.main.evidence import ExportPart
from inspector.main.inside.keys import SCROLLS, inside_table, walking
from inspector.main.tool import Host, Tool, ToolActions
from inspector.session.requests import LookReplies
from inspector.tools.positions.trials import OFFSETS, key_of
from inspector.widgets.actions import Action, Needs, both

# ---- what keys do -------------------------------------------------------------------------------


@slotted
class PositionChoices:
    """The choices of a person, kept from opening to opening."""

    row: int = 0
    offsets: list[int] = field(default_factory=lambda: list(OFFSETS))
    """Of the rows between the first and the last: three of the token, one of the path."""


class PositionsActions(ToolActions):
    """Opens the screen, and keeps the answers of the engine."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.answers = LookReplies(host.controller.client, PositionTried, key_of)
        self.choices = PositionChoices()

    def open(self) -> None:
        """Look at the position of the selected token."""
        from inspector.tools.positions.screen import PositionsScreen

        self.open_screen(PositionsScreen(self.host, self.answers, self.choices))


# ---- keys ---------------------------------------------------------------------------------------

POSITIONS_SCREEN = inside_table(
    "In the positions",
    *both(("positions.above", "positions.below"), ("Row above", "Row below"),
          "Look at another what-if: its candidates before and after are under the table.",
          lambda own, by: own.turn_row(by), hint="what if", worth=7),
    *both(("positions.less", "positions.more"), ("Less", "More"), "Give the token a lower or a higher position.",
          lambda own, by: own.shift(by), hint="another offset", worth=4),
    *walking(),
    replace(SCROLLS, help="Scroll the page."),
)  # fmt: skip


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
