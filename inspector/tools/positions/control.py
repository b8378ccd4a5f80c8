"""The choices among the positions, the answers of the engine, and the keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from engine.protocol import PositionTried
from inspector.documents.positions import OFFSETS
from inspector.main.inside_view import SCROLLS, look_table, walking
from inspector.main.tool import ToolActions
from inspector.session.requests import Replies
from inspector.widgets.actions import both

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen


class PositionsActions(ToolActions):
    """The answers of the engine, and what was chosen, from opening to opening."""

    def __init__(self, host: MainScreen) -> None:
        super().__init__(host)
        self.answers = Replies(host.controller.client, PositionTried)
        self.row = 0
        self.offsets = [*OFFSETS]
        """The offsets of the rows between the first and the last: three of the token, one of the path."""


POSITIONS_SCREEN = look_table(
    "In the positions",
    *both(("positions.above", "positions.below"), ("Row above", "Row below"),
          "Look at another what-if: its candidates before and after are under the table.",
          lambda own, by: own.turn_row(by), hint="what if", worth=7),
    *both(("positions.less", "positions.more"), ("Less", "More"), "Give the token a lower or a higher position.",
          lambda own, by: own.shift(by), hint="another offset", worth=4),
    *walking(),
    replace(SCROLLS, help="Scroll the page."),
)  # fmt: skip
