"""The weights of one head from each token to each token before it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment

from engine.protocol import TriangleRead
from inspector.blocks.paint import Painter
from inspector.display import pad, token_label
from inspector.state.session_tree import Item
from inspector.widgets.charts import in_sight
from inspector.widgets.rows import Row, wrapped

AXIS = 6
"""Cells of a row's number."""
LEGEND_LINES = 8
"""Lines from which the legend is always on show."""
TOKEN = 10
"""Cells of the token of a row, if each token has a row."""
TRIANGLE_MEANING = "A row looks at the columns; empty is later: hidden by the causal mask{}."


class Triangle:
    """The triangle of a head's weights: a row for each token, a column for each token that it attends to.

    Args:
        read: The weights.
        items: The path's tokens, at least as many as the weights'.
        cursor: The index of the selected token.
        painter: Provides the styles.
        squeezed: Whether all of it must fit: a cell then stands for several tokens, with the largest of their weights.
    """

    def __init__(
        self, read: TriangleRead, items: Sequence[Item], cursor: int, painter: Painter, squeezed: bool = False
    ) -> None:
        self._read, self._items = read, items
        self._on, self._shades = painter.on, painter.shades
        self._cursor = min(cursor, read.tokens - 1)
        self._squeezed = squeezed
        self._by = 1
        """Number of tokens in a row, and in a column."""
        self.fits = True
        """True if each token has its own row and column."""

    def rows(self, width: int, height: int) -> list[Row]:
        """The part around the cursor that fits, or all of it."""
        tokens, legend = self._read.tokens, self._legend(width)
        # in a low panel, the page scrolls to the legend
        room = max(1, height - 1 - (len(legend) if height >= LEGEND_LINES else 0))
        roomy = tokens <= room and TOKEN + AXIS + 2 * tokens <= width
        dense = self._shades.colorful and not roomy
        across, left = (2, AXIS + TOKEN) if roomy else (1, AXIS)
        fitting = max(1, (width - left) // across), room * (2 if dense else 1)
        self.fits = tokens <= min(fitting)
        self._by = -(-tokens // min(fitting)) if self._squeezed else 1
        count = -(-tokens // self._by)
        rows = in_sight(count, fitting[1], self._cursor // self._by)
        begin = max(0, rows.stop - min(count, fitting[0]))
        columns = range(begin, begin + min(count, fitting[0]))
        if dense:
            drawn = [self._dense(top, columns) for top in rows[::2]]
        else:
            drawn = [self._row(row, columns, across, roomy) for row in rows]
        return [self._axis(columns, left, across), *drawn, *self._legend(width)]

    def _axis(self, columns: range, left: int, across: int) -> Row:
        """Numbers of columns, from 1."""
        text, end = "", len(columns) * across
        for column in columns:
            cells, number = (column - columns.start) * across, str(column * self._by + 1)
            fifth = column == 0 or (column + (self._by == 1)) % 5 == 0
            if fifth and len(text) <= cells and (cells + len(number) <= end or not text):
                text = f"{text:<{cells}}{number} "
        return [Segment(" " * left + text, self._on.ink("muted"))]

    def _row(self, row: int, columns: range, across: int, labelled: bool) -> Row:
        weights, here = self._seen(row), row == self._cursor // self._by
        item = self._items[row]
        label = pad(token_label(item.text, item.raw), TOKEN - 1, right=True) + " " if labelled else ""
        cells = [self._shades.whole(_at(weights, column), across) for column in columns]
        return [self._number(row, here, label), *cells]

    def _dense(self, top: int, columns: range) -> Row:
        upper, lower = self._seen(top), self._seen(top + 1)
        here = self._cursor // self._by in (top, top + 1)
        cells = [self._shades.halves(_at(upper, column), _at(lower, column)) for column in columns]
        return [self._number(top, here), *cells]

    def _number(self, row: int, here: bool, label: str = "") -> Segment:
        """The number of a row, or of the selected token."""
        number = self._cursor if here else row * self._by
        text = f"{label}{number + 1:>{AXIS - 2}}{'▸' if here else ' '} "
        return Segment(text, self._on.ink("accent" if here else "muted"))

    def _seen(self, row: int) -> list[float | None]:
        """The weights of a row; None for what a window or a mask hides."""
        tokens = range(row * self._by, min((row + 1) * self._by, self._read.tokens))
        rows = [self._read.row(token) for token in tokens]
        if self._by == 1:
            return [weight or None for weight in rows[0]] if rows else []
        ends = range(0, len(rows[-1]) if rows else 0, self._by)
        return [
            max(max(each[first : first + self._by], default=0.0) for each in rows) or None for first in ends
        ]

    def _legend(self, width: int) -> list[Row]:
        """The meaning of rows, columns and colours, on one line if it fits."""
        hidden = 0.0 in self._read.row(self._read.tokens - 1)
        what = TRIANGLE_MEANING.format(", or by a window" if hidden else "")
        if self._by > 1:
            what += f" A cell is {self._by} × {self._by} tokens, the largest of their weights."
        muted, narrow = self._on.ink("muted"), self._shades.legend(0)
        if len(what) + 2 + Segment.get_line_length(narrow) <= width:
            return [[Segment(what + " ", muted), *narrow]]
        return [*([Segment(line, muted)] for line in wrapped(what, width)), self._shades.legend(width)]


def _at(weights: Sequence[float | None], column: int) -> float | None:
    return weights[column] if column < len(weights) else None
