"""The logit lens: the first token of each layer at each position."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len

from engine.protocol import LensColumn, LensRead, Record
from inspector.blocks.blocks import Block, Cell, Column, Table, TableRow, Text, number, sentence
from inspector.blocks.page import page_table
from inspector.blocks.paint import plain_lines
from inspector.display import token_label
from inspector.documents.parts import ExportPart, looked_at
from inspector.scales import counted, percent
from inspector.state.inside import Answers
from inspector.state.session_tree import Item
from inspector.state.timeline import Timeline

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from inspector.lessons.lesson import Beat


def depth_of(columns: Sequence[LensColumn]) -> int:
    """Number of cells in a column: the embedding and the layers."""
    return min((len(column.cells) for column in columns), default=0)


def document(read: LensRead, path: Sequence[Item], width: int | None = None) -> Iterator[Block]:
    """A column for each position, a row for each layer, the last one on top; nothing if there are no layers.

    Args:
        read: The lens.
        path: The tokens up to the last position.
        width: Cells available: only the last positions that fit are shown; None for all positions.
    """
    labels = {item.node: token_label(item.text, item.raw) for item in path}
    heads = [labels.get(column.node, "") for column in read.columns]
    if depth_of(read.columns):
        for left in range(len(heads)):
            table = _layers(read.columns[left:], heads[left:])
            if width is None or max(map(cell_len, plain_lines([table]))) <= width:
                break
        yield table
        if left:
            yield sentence(
                f"{counted(left, 'earlier position')} left out: a wider terminal has room for more."
            )
        yield sentence(
            "Marked: the layer ranks first what the last layer does. Early layers were not trained to be read so."
        )


def _layers(columns: Sequence[LensColumn], heads: Sequence[str], probability: str = "") -> Table:
    """The first token of each layer, marked if it is the final one, and its probability."""

    def row(layer: int) -> TableRow:
        made: list[Cell] = [str(layer or "embed")]
        for cell in (column.cells[layer] for column in columns):
            leads, best = cell.final_rank == 1, cell.top[0] if cell.top else None
            label = token_label(best.text) if best is not None else ""
            made.append(Text(label, "strong" if leads else "", gutter="*" if leads else " "))
            made.append(percent(best.prob) if best is not None else "")
        return TableRow(tuple(made))

    pairs = (column for head in heads for column in (Column(head), number(probability)))
    return Table((number("layer"), *pairs), [*map(row, reversed(range(depth_of(columns))))])


def _beat(timeline: Timeline, since: Sequence[Record], beat: Beat) -> Iterator[Element]:
    """The prediction of each layer after the last token."""
    read = next((each for each in timeline.of(Answers).found(LensRead) if each.node == timeline.tip), None)
    if read is not None and read.columns:
        layers = _layers(read.columns[-1:], ["token"], "probability")
        yield page_table(layers, "plain", "What each layer would predict next")


LENS_PART = ExportPart(
    "lens",
    looked_at(LensRead, "lens", lambda read: "What each layer would predict", document, tables="plain lens"),
    beat=_beat,
)
