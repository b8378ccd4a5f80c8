"""Frequencies of many draws beside their stated probabilities, for an export."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from inspector.blocks.page import elements
from inspector.documents.draws import frequencies
from inspector.documents.parts import Exhibit, Exported, ExportPart
from inspector.scales import count
from inspector.state.batch import Batches

LISTED = 24
"""Tokens of an export at most, the most frequent first."""


def _exhibits(of: Exported) -> Iterator[Exhibit]:
    if (drawn := of.timeline.of(Batches).drawn) is not None:
        make = partial(elements, [*frequencies(drawn, LISTED)])
        yield Exhibit("odds", f"What {count(drawn.draws)} draws came to", make, drawn.node)


ODDS_PART = ExportPart("odds", _exhibits)
