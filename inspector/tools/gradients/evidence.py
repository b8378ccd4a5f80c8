"""Which tokens a logit hung on, as it leaves with an export."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from xml.etree.ElementTree import Element

from engine.protocol import GradientsRead
from inspector.blocks.elements import element, explained, row, table
from inspector.display import visible
from inspector.main.evidence import Exhibit, Exported, ExportPart, of_both
from inspector.scales import count, signed
from inspector.state.gradients import (
    MEANINGS,
    asked_words,
    complete_words,
    largest,
    method_words,
    notes_of,
    shares_of,
)
from inspector.state.inside import InsideViews
from inspector.state.session_tree import SessionTree

LISTED = 12
"""Tokens in the table."""
EDGES = (0.02, 0.05, 0.15, 0.35, 0.65)
"""Shares from which on a token has the next ground."""
COLOURED = 512
"""Tokens of the coloured text at most: the last ones."""


def _exhibits(of: Exported) -> Iterator[Exhibit]:
    def exhibits(seen: InsideViews) -> Iterator[Exhibit]:
        for ((node, token), _), read in seen.gradients.items():
            heading = f"What {asked_words(read)} hangs on: {method_words(read)}"
            yield Exhibit("gradients", heading, partial(_shown, read, of.timeline.tree, node), node, token)

    return of_both(of, exhibits)


def _shown(read: GradientsRead, tree: SessionTree, node: int) -> Iterator[Element]:
    """The text with its shares as grounds, then the largest of them."""
    path = tree.path(node)
    shares = shares_of(read, path)
    if not shares:
        return
    text = element(
        "p",
        *(
            element(
                "span",
                visible(path[each.place].text),
                title=f"{signed(each.value)} logits, {signed(100 * each.share, 1)} %",
                class_=_ground(each.share) or None,
            )
            for each in shares[-COLOURED:]
        ),
        class_="gradients",
    )
    rows = [
        row(
            each.label,
            f"token {count(each.place + 1)}",
            f"{signed(100 * each.share, 1)} %",
            signed(each.value),
        )
        for each in largest(shares)[:LISTED]
    ]
    if left := largest(shares)[LISTED:]:
        of_left = math.fsum(each.share for each in left), math.fsum(each.value for each in left)
        words = f"{signed(100 * of_left[0], 1)} %", signed(of_left[1])
        rows.append(row(f"{count(len(left))} others", "", *words, class_="others"))
    says = " ".join([complete_words(read), *notes_of(read), MEANINGS[read.method]])
    yield explained(
        says, read.facts, text, table("", ("token", "", "share", "logits"), rows, class_="figured")
    )


def _ground(share: float) -> str:
    """The class of a token's ground: `plus` for what raises the logit, `minus` for what lowers it, and how dense."""
    step = sum(abs(share) >= edge for edge in EDGES)
    return f"{'plus' if share >= 0 else 'minus'}-{step}" if step else ""


GRADIENTS_PART = ExportPart("gradients", _exhibits)
