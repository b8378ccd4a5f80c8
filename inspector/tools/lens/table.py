"""The table of the lens: layers by positions, and one token followed through the layers beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from rich.segment import Segment
from rich.style import Style

from engine.frozen import frozen
from engine.protocol import LensCell, LensColumn
from inspector.display import pad, quoted, token_label, truncate_middle
from inspector.main.inside.screen import part_shown
from inspector.tools.lens.measures import CellMeasure, place, share
from inspector.widgets.canvas import Canvas, Row, colourful, is_dark
from inspector.widgets.charts import bar
from inspector.widgets.token_styles import heat_style

Thing = TypeVar("Thing")
LABEL = 6
"""Cells of the layers' numbers."""
CELL, WIDEST = 13, 18
"""Cells of a column at least and at most: a mark, the token, a blank and four cells of a number."""
FIGURES = 12
"""Cells beside the bar of the followed token: probability, rank, blanks."""
LEADS, ROUGH = "▸", "~"


class LensLayout(NamedTuple):
    """How the width is divided."""

    columns: int
    cell: int
    side: int
    """Cells of the followed token's bars and figures."""


@frozen
class Table:
    """What is drawn.

    Args:
        columns: Of the record, all of them.
        heads: The token of each, printable.
        measure: What number and colour are.
        cursor: The cell of the last column that is looked at.
        followed: Which of the followed tokens stands beside the table, None for none.
        name: Its label.
    """

    columns: Sequence[LensColumn]
    heads: Sequence[str]
    measure: CellMeasure
    cursor: int
    followed: int | None
    name: str

    @property
    def depth(self) -> int:
        """Cells of a column: the embedding and the layers."""
        return min((len(column.cells) for column in self.columns), default=0)

    def draw(self, on: Canvas, width: int, height: int) -> list[Row]:
        """The head, and as many layers as there is room for, those around the cursor; upwards."""
        form = layout(width, len(self.columns), self.followed is not None)
        room = max(1, height - 1)
        said: list[Row] = []
        if self.depth > room > 2:
            room -= 1
            shown = self._shown(room)
            text = part_shown(width, ("layers", [layer - 1 for layer in shown if layer], self.depth - 1))
            said = [[Segment(text, on.ink("warn"))]]
        return [
            *said,
            self._head(on, form),
            *(self._row(on, form, layer) for layer in reversed(self._shown(room))),
        ]

    def _shown(self, room: int) -> range:
        """As many layers as there is room for, around the cursor."""
        first = max(0, min(self.cursor - room // 2, self.depth - room))
        return range(first, min(self.depth, first + room))

    def _head(self, on: Canvas, form: LensLayout) -> Row:
        heads = self.heads[-form.columns :]
        row: Row = [Segment(pad("after", LABEL), on.ink("muted"))]
        row += [
            Segment(
                " " + pad(truncate_middle(head, form.cell - 1), form.cell - 1),
                on.ink("accent" if last else "muted"),
            )
            for last, head in _with_last(heads)
        ]
        if form.side:
            row.append(Segment(pad(f"  follows {quoted(self.name)}", form.side), on.ink("accent")))
        return row

    def _row(self, on: Canvas, form: LensLayout, layer: int) -> Row:
        here = layer == self.cursor
        row: Row = [Segment(self._label(layer), on.ink("accent" if here else "muted"))]
        for last, column in _with_last(self.columns[-form.columns :]):
            row += self._cell(on, form, column, layer, last and here)
        if form.side and self.followed is not None:
            row += self._followed(on, form, self.columns[-1].cells[layer], self.followed)
        return row

    def _label(self, layer: int) -> str:
        rough = ROUGH if is_rough(layer, self.depth) else " "
        return f"{rough}{layer:>3}  " if layer else f"{rough}embed"

    def _cell(self, on: Canvas, form: LensLayout, column: LensColumn, layer: int, here: bool) -> Row:
        cell = column.cells[layer]
        mark = Segment(LEADS if column.leads_from == layer else " ", on.ink("accent"))
        best = token_label(cell.top[0].text) if cell.top else ""
        text = pad(truncate_middle(best, form.cell - 6), form.cell - 6) + pad(
            self.measure.number(cell), 5, right=True
        )
        style = on.rich_style + ground(on, self.measure.step(cell)) + Style(bold=cell.final_rank == 1)
        return [mark, Segment(text, on.ink("cursor") if here else style)]

    def _followed(self, on: Canvas, form: LensLayout, cell: LensCell, index: int) -> Row:
        prob, rank = cell.followed[index], cell.followed_ranks[index]
        drawn = Segment(bar(prob, form.side - FIGURES), on.data(prob))
        return [Segment("  "), drawn, Segment(f" {share(prob):>4} {place(rank):>4}", on.rich_style)]


def layout(width: int, available: int, side: bool = True) -> LensLayout:
    """Divide the width: the followed token's part, then as many columns as fit.

    Args:
        width: Cells.
        available: Columns that there are.
        side: Whether a token is followed.
    """
    beside = (17 if width < 60 else 18 if width < 100 else 32) if side else 0
    room = width - LABEL - beside
    columns = max(1, min(available, room // CELL))
    return LensLayout(columns, max(8, min(WIDEST, room // columns)), beside)


def ground(on: Canvas, step: int) -> Style:
    """The colour of a step; lines under the text only where there are no colours."""
    colours = colourful(on.app)
    return heat_style(step, is_dark(on.app), colours) + Style(underline=False if colours else None)


def is_rough(layer: int, depth: int) -> bool:
    """Whether a cell is in the first half of the layers, by convention: nothing measures how far it can be trusted."""
    return layer < (depth - 1) / 2


def _with_last(things: Sequence[Thing]) -> list[tuple[bool, Thing]]:
    return [(index == len(things) - 1, thing) for index, thing in enumerate(things)]
