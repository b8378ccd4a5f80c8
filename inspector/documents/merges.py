"""The ladders of the words that were looked at, with an export."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from xml.etree.ElementTree import Element

from engine.protocol import TakenApart
from inspector.blocks.elements import hint, row, table
from inspector.display import quoted
from inspector.documents.parts import Exhibit, Exported, ExportPart
from inspector.state.inside import Answers
from inspector.state.merges import BORDER, head, labels, rung, rungs, summed, told_rungs, word_label


def _exhibits(of: Exported) -> Iterator[Exhibit]:
    for taken in of.timeline.of(Answers).found(TakenApart):
        if taken.node in of.places:
            title = f"How {quoted(word_label(taken.words[0]))} came to its tokens"
            yield Exhibit("merges", title, partial(_ladder, taken), taken.node)


def _ladder(taken: TakenApart) -> Iterator[Element]:
    word, rows = taken.words[0], []
    for place in told_rungs(word):
        if place is None:
            rows.append(row("…", f"{rungs(word):,} in all"))
        else:
            made = rung(word, place)
            rows.append(row(made.of, BORDER.join(labels(made.pieces))))
    yield table("", (head(taken.algorithm), "pieces"), rows, class_="plain")
    yield hint(f"{summed(taken)}.")


MERGES_PART = ExportPart("merges", _exhibits)
