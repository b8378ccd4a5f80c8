"""The trials of a token's position, for an export."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import groupby

from engine.protocol import PositionTried
from inspector.blocks.page import elements
from inspector.documents.parts import Exhibit, Exported, ExportPart, of_both
from inspector.documents.positions import compared
from inspector.state.inside import Answers


def _exhibits(of: Exported) -> Iterator[Exhibit]:
    def exhibits(second: bool) -> Iterator[Exhibit]:
        tried = sorted(of.timeline.of(Answers).found(PositionTried, second), key=lambda each: each.node)
        for node, answers in groupby(tried, key=lambda each: each.node):
            read = list(answers)
            make = partial(elements, [*compared(read)], read[0].facts)
            yield Exhibit("positions", "What if the token stood elsewhere", make, node)

    return of_both(of, exhibits)


POSITIONS_PART = ExportPart("positions", _exhibits)
