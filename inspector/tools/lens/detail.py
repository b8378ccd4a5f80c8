"""What stands under the table: one cell's list of tokens in full, where the answer first leads, and the legend."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.segment import Segment

from engine.protocol import LensCell, LensColumn, LensToken
from inspector.display import pad, quoted, token_label, truncate_middle
from inspector.scales import bits, count, percent
from inspector.tools.lens.measures import CellMeasure, share
from inspector.tools.lens.table import LEADS, ROUGH, ground
from inspector.widgets.canvas import Canvas, Row, wrapped
from inspector.widgets.charts import bar

ENTRY = 15
"""Cells of a token in the grid: rank, label, probability."""
WORDS = (
    "Each cell: the token that the model's own end (last norm and head) would pick if the layers stopped there. "
    f"{LEADS} from here on the final token leads. "
    f"{ROUGH} rough: that end was never trained to read early layers, so what they seem to say is a hint at most."
)
SHORT = f"{LEADS} the answer leads from here on  {ROUGH} rough: the end isn't trained for these"


def detail(
    on: Canvas, column: LensColumn, layer: int, measure: CellMeasure, width: int, height: int
) -> list[Row]:
    """The rows under the table, as many as fit.

    Args:
        on: Where they are drawn.
        column: The last one.
        layer: The cell that is looked at, 0 for the embedding.
        measure: What the colours mean.
        width: Cells.
        height: Rows.
    """
    cell = column.cells[layer]
    final = column.cells[-1].top[0] if column.cells[-1].top else None
    said: list[Row] = [[Segment(_cell_line(cell, layer, final, width), on.rich_style)]]
    if height < 4:
        return said[:height]
    said = [[Segment(_lead_line(column, final, width), on.ink("accent"))], *said]
    legend = [_colours(on, measure, width), [Segment(SHORT, on.ink("muted"))]]
    words: list[Row] = [[Segment(line, on.ink("muted"))] for line in wrapped(WORDS, width)]
    if height >= len(said) + len(cell.top) + len(words) + 4:
        return [[], *said, *_bars(on, cell.top, final, width), [], legend[0], *words]
    room = max(1, height - len(said) - len(legend))
    grid = _grid(on, cell.top, width, room)[:room]
    return [*said, *grid, *legend][:height]


def _lead_line(column: LensColumn, final: LensToken | None, width: int) -> str:
    if final is None:
        return ""
    name, first = quoted(token_label(final.text)), column.leads_from
    if first == 0:
        return f"{LEADS} {name} leads from the embedding on: no layer changes that."
    layers = len(column.cells) - 1
    long = f"{LEADS} The model's answer, {name}, leads from layer {first} of {layers} on."
    if first == layers:
        long = f"{LEADS} The model's answer, {name}, leads after the last layer alone: {layers} of {layers}."
    return long if cell_len(long) <= width else f"{LEADS} {name} leads from layer {first} on"


def _cell_line(cell: LensCell, layer: int, final: LensToken | None, width: int) -> str:
    where = f"After layer {layer}" if layer else "At the embedding"
    rank = f"{quoted(token_label(final.text))} is rank {count(cell.final_rank)}" if final else ""
    long = f"{where}: {rank}; entropy {bits(cell.entropy_bits)} bits. Its list:"
    short = (
        f"{'L' + str(layer) if layer else 'embed'}: answer #{cell.final_rank}, {bits(cell.entropy_bits)} bits"
    )
    return long if cell_len(long) <= width else short


def _bars(on: Canvas, top: Sequence[LensToken], final: LensToken | None, width: int) -> list[Row]:
    """The list with bars, a token a line."""
    label = max((cell_len(token_label(token.text)) for token in top), default=0)
    label, rows = min(label, width // 3), []
    for rank, token in enumerate(top, 1):
        ink = on.ink("strong") if final is not None and token.id == final.id else on.rich_style
        row: Row = [
            Segment(f"  {rank:>2}  {pad(token_label(token.text), label)} {percent(token.prob):>8}  ", ink)
        ]
        row.append(Segment(bar(token.prob, min(40, width - label - 16)), on.data(token.prob)))
        rows.append(row)
    return rows


def _grid(on: Canvas, top: Sequence[LensToken], width: int, room: int) -> list[Row]:
    """The list in columns that are as wide as its tokens, if the rows that there is room for hold it then."""
    labels = [token_label(token.text) for token in top]
    most = max(ENTRY, 9 + max(map(cell_len, labels), default=0))
    size = next((cells for cells in range(most, ENTRY, -1) if room * (width // cells) >= len(top)), ENTRY)
    across = max(1, width // size)
    entries = [
        f"{rank:>2} {pad(truncate_middle(label, size - 9), size - 9)} {share(token.prob):>4}"
        for rank, (label, token) in enumerate(zip(labels, top, strict=True), 1)
    ]
    return [
        [Segment(pad(entry, size), on.rich_style) for entry in entries[first : first + across]]
        for first in range(0, len(entries), across)
    ]


def _colours(on: Canvas, measure: CellMeasure, width: int) -> Row:
    """Each step's edge on its own colour."""
    says = f"Number and colour: {measure.says} "
    if cell_len(says) + sum(len(edge) + 3 for edge in measure.edges) > width:
        says = f"{measure.name} "
    row: Row = [Segment(says, on.ink("muted"))]
    for step, edge in enumerate(measure.edges, 1):
        row += [Segment(f" {edge} ", on.rich_style + ground(on, step)), Segment(" ")]
    return row
