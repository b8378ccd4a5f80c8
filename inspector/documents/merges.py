"""The ladders of the words that were looked at, for an export."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from engine.protocol import TakenApart
from inspector.blocks.blocks import Block, Column, Table, TableRow, sentence
from inspector.blocks.page import elements
from inspector.display import quoted
from inspector.documents.parts import Exhibit, Exported, ExportPart
from inspector.state.inside import Answers
from inspector.state.merges import BORDER, head, labels, rung, rungs, summed, told_rungs, word_label


def _exhibits(of: Exported) -> Iterator[Exhibit]:
    for taken in of.timeline.of(Answers).found(TakenApart):
        if taken.node in of.places:
            title = f"How {quoted(word_label(taken.words[0]))} came to its tokens"
            yield Exhibit("merges", title, partial(elements, [*_ladder(taken)], tables="plain"), taken.node)


def _ladder(taken: TakenApart) -> Iterator[Block]:
    word, rows = taken.words[0], []
    for place in told_rungs(word):
        cells = "…", f"{rungs(word):,} in all"
        if place is not None:
            made = rung(word, place)
            cells = made.of, BORDER.join(labels(made.pieces))
        rows.append(TableRow(cells))
    yield Table((Column(head(taken.algorithm)), Column("pieces")), rows)
    yield sentence(f"{summed(taken)}.")


MERGES_PART = ExportPart("merges", _exhibits)
