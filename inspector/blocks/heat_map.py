"""Maps of numbers on colors by their size: layers by columns, as many as fit around the selected cell."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Generic, TypeVar

from msgspec import Struct
from rich.segment import Segment
from rich.style import Style

from inspector.blocks.paint import part_shown
from inspector.blocks.shades import GLYPHS, Inks
from inspector.display import first_fitting, pad
from inspector.widgets.charts import in_sight
from inspector.widgets.rows import Row, heat_style

Column = TypeVar("Column", bound=Hashable)
LABEL = 5
"""Cells of a layer's name."""
NUMBERED = 4
"""Cells of a column from which it has numbers."""
BELOW = "·-~=≡#"
"""The glyphs of the steps below 0, from calm to strongest."""
NOTHING = "·"
"""A number too small for its cells."""
MARK = "×"


class Scale(Struct, frozen=True):
    """The colors of numbers.

    Args:
        edges: The number at which each step begins, without its sign.
        plus: The sign before numbers above 0.
        signed: Whether there are numbers below 0, which have their own colors.
        below: The words for all numbers below 0 in the legend; empty for an entry for each step.
    """

    edges: tuple[float, ...]
    plus: str = ""
    signed: bool = True
    below: str = ""

    def step(self, value: float) -> int:
        """The step of a number, from 0 for none to 5; negative if the number is."""
        step = sum(abs(value) >= edge for edge in self.edges)
        return -step if value < 0 else step

    def style(self, on: Inks, step: int) -> Style:
        """The style of a step."""
        return on.rich_style + heat_style(step, on.dark, on.colorful, self.signed)

    def legend(self, on: Inks, cells: int, width: int, *says: str) -> Row:
        """The meaning of the colors, and each step's edge on its own color.

        Args:
            on: Provides the styles.
            cells: The width of a column of the map: its glyphs are explained if it has no numbers.
            width: Cells of the row.
            says: The words before the edges: the first that fit.
        """
        entries = [(step, f"{self.plus}{edge:g}") for step, edge in enumerate(self.edges, 1)]
        if self.below:
            entries.append((-3, self.below))
        elif self.signed:
            entries += [(-step, f"-{edge:g}") for step, edge in enumerate(self.edges, 1)]
        row: Row = []
        for step, text in entries:
            glyph = "" if cells >= NUMBERED else _glyph(on, step).strip()
            row.append(Segment(f" {glyph}{text} ", self.style(on, step)))
        words = first_fitting(width - Segment.get_line_length(row), *says)
        return [Segment(words, on.ink("muted")), *row]


SHARES = Scale((0.05, 0.2, 0.4, 0.6, 0.8), below="below 0")
"""The colors of a share of a difference."""


def figure(value: float, cells: int, plus: str = "") -> str:
    """A number in a few cells: `1.20`, `.12`, `−1.2`, `+12`; a dot for next to nothing.

    Args:
        value: The number.
        cells: Cells available, 3 or more.
        plus: The sign of a number above 0.
    """
    sign = "−" if value < 0 else plus
    size, room = abs(value), cells - len(sign)
    for digits in (2, 1, 0):
        text = f"{size:.{digits}f}"
        if not float(text):
            return NOTHING
        if len(text) <= room:
            return sign + text
        if text.startswith("0.") and len(text) - 1 <= room:
            return sign + text[1:]
    return sign + "9" * room


def _glyph(on: Inks, step: int) -> str:
    """The sign shown if there is no room for the number: a blank if there are colors."""
    return " " if on.colorful else GLYPHS[step] if step >= 0 else BELOW[-step]


class HeatMap(Struct, Generic[Column]):
    """Numbers by layer and column.

    Args:
        scale: Their colors.
        layers: The layers, counted from 0, the lowest first.
        value: Gives the number for the index of a layer and a column; None if there is none.
        at: The selected cell: the index of its layer, and its column.
        marked: The marked cells.
    """

    scale: Scale
    layers: Sequence[int]
    value: Callable[[int, Column], float | None]
    at: tuple[int, Column]
    marked: Collection[tuple[int, Column]] = ()

    def draw(
        self, on: Inks, heads: list[Row], cells: Mapping[Column, int], part: tuple[str, Sequence[int], int],
        width: int, height: int,
    ) -> list[Row]:  # fmt: skip
        """The rows from the top: the part that is shown, the names of the columns, and the layers, the last one first.

        Args:
            on: Provides the styles.
            heads: The names of the columns.
            cells: The width of each column in sight.
            part: The columns in sight, for `part_shown`.
            width: Cells of a row.
            height: Lines available.
        """
        depth, room = len(self.layers), max(1, height - len(heads))
        rows: list[Row] = [*heads]
        if room > 2 and (depth > room or len(part[1]) < part[2]):
            room -= 1
            said = part_shown(width, ("layers", in_sight(depth, room, self.at[0]), depth), part)
            rows.insert(0, [Segment(said, on.ink("warn"))])
        for place in reversed(in_sight(depth, room, self.at[0])):
            ink = on.ink("accent" if place == self.at[0] else "muted")
            row: Row = [Segment(pad(f"L{self.layers[place] + 1}", LABEL), ink)]
            row += [self._cell(on, place, column, wide) for column, wide in cells.items()]
            rows.append(row)
        return rows

    def _cell(self, on: Inks, place: int, column: Column, wide: int) -> Segment:
        if (value := self.value(place, column)) is None:
            return Segment(" " * wide)
        step, mark = self.scale.step(value), (place, column) in self.marked
        text = (MARK if mark else _glyph(on, step)) * wide
        if wide >= NUMBERED:
            own_sign = value < 0 and not self.scale.plus  # takes the place of the blank
            number = figure(value, min(wide if own_sign and not mark else wide - 1, 5), self.scale.plus)
            text = (MARK * mark + number).rjust(wide)
        if (place, column) != self.at:
            return Segment(text, self.scale.style(on, step))
        # the cursor's usual orange is that of numbers below 0
        cursor = on.ink("strong") + Style(reverse=True, bold=True) if self.scale.signed else on.ink("cursor")
        return Segment(text, cursor)
