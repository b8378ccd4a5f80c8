"""How the look-ahead line of a candidate is drawn, and where it gets its room."""

from __future__ import annotations

import math
from enum import Enum

from rich.cells import cell_len

from engine.frozen import frozen
from engine.protocol import AheadLine
from inspector import scales
from inspector.display import SPACE, truncate, visible

END = "‹end›"
"""Marks where the text would end."""
WAITING = "…"
LEAST, ENOUGH = 24, 32
"""Cells that a line needs before the joint probability, and before what the sampler made of it, get their room."""
MOST = 60
"""Cells that a candidate and its line get before the bar comes back."""
TALL = 13
"""Rows from which a line gets a row of its own."""


class Placement(Enum):
    """Where the lines are drawn."""

    OFF = "off"
    BEHIND = "behind"
    """Behind the candidate's token, instead of the bar, the rank and the id."""
    UNDER = "under"
    """In a row under the candidate's."""


def placement(on: bool, height: int) -> Placement:
    """Where a panel of `height` rows draws the lines."""
    if not on:
        return Placement.OFF
    return Placement.UNDER if height >= TALL else Placement.BEHIND


@frozen
class LineText:
    """What is shown of one line."""

    text: str = ""
    joint: str = ""
    """Probability of the candidate and all tokens after it together."""


def line_text(line: AheadLine | None, waited_for: bool) -> LineText:
    """What is shown of a line, printable.

    Args:
        line: None where there is none.
        waited_for: Whether one was requested.
    """
    if line is None:
        return LineText(WAITING if waited_for else "")
    text = visible(line.text) + (END if line.ended else "")
    return LineText(text, scales.percent(math.exp(line.logprob)))


def own_row(text: str) -> str:
    """The text of a line in its own row: the spaces at its beginning are shown."""
    rest = text.lstrip(" ")
    return SPACE * (len(text) - len(rest)) + rest


def fill_cells(text: str, cells: int) -> tuple[str, str]:
    """A text cut to `cells` cells, and the blanks that fill them."""
    shown = truncate(text, cells)
    return shown, " " * (cells - cell_len(shown))
