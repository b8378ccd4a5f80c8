"""What is chosen among the positions, and the keys."""

from __future__ import annotations

from msgspec import Struct, field
from msgspec.structs import replace

from inspector.main.inside.keys import SCROLLS, inside_table, walking
from inspector.state.positions import OFFSETS
from inspector.widgets.actions import both


class PositionChoices(Struct):
    """The choices of a person, kept from opening to opening."""

    row: int = 0
    offsets: list[int] = field(default_factory=lambda: list(OFFSETS))
    """Of the rows between the first and the last: three of the token, one of the path."""


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
