"""The triangle of a head: a row for each token that looks, a column for each that is looked at."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment

from engine.records import TriangleRead
from inspector.display import pad, token_label
from inspector.state.session_tree import Item
from inspector.tools.attention.shades import Shades
from inspector.widgets.canvas import Canvas, Row, wrapped

AXIS = 6
"""Cells of a row's number."""
LOW = 8
"""Lines from which on the legend is always on show."""
LABEL = 10
"""Cells of a row's token, where there is room for a row each."""
WHAT = "A row looks at the columns; empty is later: hidden by the causal mask{}."


class Triangle:
    """Draws one.

    Args:
        read: The weights.
        items: The path's tokens, as many at least.
        cursor: The row that is looked at, from 0.
        on: Has the inks.
    """

    def __init__(self, read: TriangleRead, items: Sequence[Item], cursor: int, on: Canvas) -> None:
        self._read, self._items, self._on = read, items, on
        self._cursor = min(cursor, read.tokens - 1)
        self._shades = Shades(on)

    def rows(self, width: int, height: int) -> list[Row]:
        """As much of it around the cursor as there is room for."""
        legend = self._legend(width)
        room = (
            height - 1 - (len(legend) if height >= LOW else 0)
        )  # where it is low, the page scrolls to the legend
        room, tokens = max(1, room), self._read.tokens
        roomy = tokens <= room and LABEL + AXIS + 2 * tokens <= width
        dense = self._shades.colourful and not roomy
        across = 2 if roomy else 1
        left = AXIS + (LABEL if roomy else 0)
        shown = min(tokens, max(1, (width - left) // across))
        down = min(tokens, room * (2 if dense else 1))
        first_row = max(0, min(self._cursor - down // 2, tokens - down))
        first_column = 0 if shown >= tokens else max(0, min(first_row + down, tokens) - shown)
        columns = range(first_column, first_column + shown)
        if dense:
            drawn = [self._dense(top, columns) for top in range(first_row, first_row + down, 2)]
        else:
            drawn = [self._row(row, columns, across, roomy) for row in range(first_row, first_row + down)]
        return [self._axis(columns, left, across), *drawn, *legend]

    def _axis(self, columns: range, left: int, across: int) -> Row:
        """The numbers of every fifth column, from 1."""
        text = ""
        for column in columns:
            cells = (column - columns.start) * across
            if len(text) <= cells and (column == 0 or (column + 1) % 5 == 0):
                text = f"{text:<{cells}}{column + 1} "
        cells = len(columns) * across
        return [Segment(" " * left + f"{text:<{cells}}"[:cells], self._on.ink("muted"))]

    def _row(self, row: int, columns: range, across: int, labelled: bool) -> Row:
        weights, here = self._seen(row), row == self._cursor
        ink = self._on.ink("accent" if here else "muted")
        label = ""
        if labelled:
            item = self._items[row]
            label = pad(token_label(item.text, item.raw), LABEL - 1, right=True) + " "
        cells = [
            self._shades.whole(weights[column] if column < len(weights) else None, across)
            for column in columns
        ]
        return [Segment(f"{label}{row + 1:>{AXIS - 2}}{'▸' if here else ' '} ", ink), *cells]

    def _dense(self, top: int, columns: range) -> Row:
        upper, lower = self._seen(top), self._seen(top + 1)
        here = self._cursor in (top, top + 1)
        number = self._cursor if here else top
        cells = [
            self._shades.halves(
                upper[column] if column < len(upper) else None, lower[column] if column < len(lower) else None
            )
            for column in columns
        ]
        axis = f"{number + 1:>{AXIS - 2}}{'▸' if here else ' '} "
        return [Segment(axis, self._on.ink("accent" if here else "muted")), *cells]

    def _seen(self, row: int) -> list[float | None]:
        """A row's weights; None for what a window or a mask hides."""
        return [weight or None for weight in self._read.row(row)]

    def _legend(self, width: int) -> list[Row]:
        """What rows, columns and colours mean: on one line where it is wide enough."""
        hidden = any(weight is None for weight in self._seen(self._read.tokens - 1))
        what, scale = WHAT.format(", or by a window" if hidden else ""), self._shades.legend(width)
        muted = self._on.ink("muted")
        narrow = self._shades.legend(0)
        if len(what) + 2 + sum(part.cell_length for part in narrow) <= width:
            return [[Segment(what + " ", muted), *narrow]]
        return [*([Segment(line, muted)] for line in wrapped(what, width)), scale]
