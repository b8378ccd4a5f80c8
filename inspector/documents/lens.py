"""The logit lens in an export."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from engine.protocol import LensColumn, LensRead, Record
from inspector.blocks.elements import element, explained, heading, row, table
from inspector.display import token_label
from inspector.documents.parts import Exhibit, Exported, ExportPart, of_both
from inspector.scales import percent
from inspector.state.inside import Answers
from inspector.state.timeline import Timeline

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from inspector.lessons.lesson import Beat


def _exhibits(of: Exported) -> Iterator[Exhibit]:
    def exhibits(second: bool) -> Iterator[Exhibit]:
        for read in of.timeline.of(Answers).found(LensRead, second):
            yield Exhibit("lens", "What each layer would predict", partial(_table, read, of), read.node)

    return of_both(of, exhibits)


def _table(read: LensRead, of: Exported) -> Iterator[Element]:
    """A column for each position, a row for each layer, the last one on top."""
    depth = max((len(column.cells) for column in read.columns), default=0)
    if not depth:
        return
    nodes = of.timeline.tree.nodes
    texts = [nodes[column.node].text if column.node in of.places else "" for column in read.columns]
    names = (heading(token_label(text) if text else "") for text in texts)
    rows = [
        element("tr", element("th", str(layer or "emb"), scope="row"), *(_lens_cell(c, layer) for c in read.columns))
        for layer in reversed(range(depth))
    ]  # fmt: skip
    shown = element("table", element("thead", element("tr", element("td"), *names)), element("tbody", *rows))
    says = (
        "Bold: the layer ranks first what the last layer does. Early layers were not trained to be read so."
    )
    yield explained(says, read.facts, element("div", shown, class_="lens"))


def _lens_cell(column: LensColumn, layer: int) -> Element:
    cell = column.cells[layer] if layer < len(column.cells) else None
    if cell is None or not cell.top:
        return element("td")
    label, leads = token_label(cell.top[0].text), "leads" if cell.final_rank == 1 else None
    return element("td", label, class_=leads, title=f"{label} {percent(cell.top[0].prob)}")


def _beat(timeline: Timeline, since: Sequence[Record], beat: Beat) -> Iterator[Element]:
    """The prediction of each layer after the last token."""
    read = next((each for each in timeline.of(Answers).found(LensRead) if each.node == timeline.tip), None)
    if read is not None and read.columns:
        rows = [
            row(str(layer or "embedding"), token_label(cell.top[0].text), percent(cell.top[0].prob),
                class_="leads" if cell.final_rank == 1 else None)
            for layer, cell in reversed(list(enumerate(read.columns[-1].cells)))
            if cell.top
        ]  # fmt: skip
        head = ("layer", "token", "probability")
        yield table("What each layer would predict next", head, rows, class_="plain")


LENS_PART = ExportPart("lens", _exhibits, beat=_beat)
