"""Why a head looks there, as it leaves with an export."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from xml.etree.ElementTree import Element

from engine.protocol import ScoreRead
from inspector.blocks.elements import bar_around_zero, element, explained, row, table
from inspector.display import token_label
from inspector.main.evidence import Exhibit, Exported, ExportPart, of_both
from inspector.scales import count, signed
from inspector.state.inside import InsideViews
from inspector.state.scores import (
    ScoreShare,
    by_weight,
    head_name,
    in_words,
    key_shares,
    pair_shares,
    query_shares,
)

MOST = 10
"""Rows of a table."""
SAYS = (
    "What each writer makes of the head's score against the mean over its keys, with the norms held. These are direct "
    "effects: who wrote what, not why."
)


def _exhibits(of: Exported) -> Iterator[Exhibit]:
    def exhibits(seen: InsideViews) -> Iterator[Exhibit]:
        for (node, _, _), read in seen.scores.items():
            yield Exhibit("scores", f"Why {head_name(read)} looks there", partial(_tables, read, of), node)

    return of_both(of, exhibits)


def _tables(read: ScoreRead, of: Exported) -> Iterator[Element]:
    """A sentence on the heaviest key, and bars of the key's writers, the query's, and of pairs."""
    order = by_weight(read)
    if not order:
        return
    key = order[0]
    labels = [token_label(each.text, each.raw) for each in of.timeline.tree.path(read.node)]
    yield explained(
        SAYS,
        read.facts,
        element("p", in_words(read, labels, key)),
        _bars("in the key", key_shares(read, key)),
        _bars("in the query", query_shares(read, key)),
        _bars("query × key", pair_shares(read, key), whole=False),
    )


def _bars(what: str, shares: Sequence[ScoreShare], whole: bool = True) -> Element | None:
    """The largest shares as bars around zero, and what the others sum to.

    Args:
        what: Whose they are.
        shares: The largest first.
        whole: Whether they are all; of pairs only the largest are known.
    """
    kept, left = shares[:MOST], shares[MOST:]
    if not kept:
        return None
    low, high = min(0.0, *(each.value for each in kept)), max(0.0, *(each.value for each in kept))
    rows = [row(each.name, bar_around_zero(each.value, low, high), signed(each.value)) for each in kept]
    if left and whole:
        rest = signed(math.fsum(each.value for each in left))
        rows.append(row(f"{count(len(left))} others", "", rest, class_="others"))
    elif left:
        rows.append(row(f"{count(len(left))} more", "", "", class_="others"))
    return table("", (what, "", "score"), rows, class_="figured bars")


SCORES_PART = ExportPart("scores", _exhibits)
"""Why heads look where they look."""
