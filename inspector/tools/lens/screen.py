"""The screen of the logit lens: layers by positions, in each cell what the model's end makes of the residual stream."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

from rich.segment import Segment

from engine.commands import Command, ReadLens
from engine.records import LensColumn, LensRead
from inspector.display import pad, token_label, truncate
from inspector.main.inside.screen import InsideScreen
from inspector.scales import percent
from inspector.widgets.canvas import Canvas, Row

CELL = 14
"""Cells of a column of the table."""


class LensScreen(InsideScreen[LensRead]):
    """Layers by positions."""

    TOOL: ClassVar[str] = "lens"

    def question(self) -> tuple[Hashable, Command]:
        return self.node, ReadLens(self.node)

    def heading(self, answer: LensRead | None) -> str:
        return "What each layer would predict"

    def draw(self, answer: LensRead, on: Canvas, width: int, height: int) -> list[Row]:
        columns = answer.columns[-max(1, (width - 7) // CELL) :]
        count = len(columns[0].cells)
        return [self._row(columns, layer, on) for layer in range(count - 1, -1, -1)]

    def _row(self, columns: tuple[LensColumn, ...], layer: int, on: Canvas) -> Row:
        row: Row = [Segment(f"{layer or 'embed':>5}  ", on.ink("muted"))]
        for column in columns:
            cell = column.cells[layer]
            best = cell.top[0]
            text = pad(truncate(token_label(best.text, b""), CELL - 7), CELL - 7)
            row.append(
                Segment(
                    f"{text} {percent(best.prob):>5} ",
                    on.ink("strong") if cell.final_rank == 1 else on.rich_style,
                )
            )
        return row
