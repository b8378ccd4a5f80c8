"""Gradients of a logit, or of the difference of two: the share of each token of the context."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from engine.protocol import GradientsRead
from inspector.blocks.blocks import Bar, Block, Column, HeatText, Table, TableRow, number, sentence, sentences
from inspector.display import visible
from inspector.documents.parts import ExportPart, looked_at
from inspector.scales import count, signed
from inspector.state.attribution import (
    MEANINGS,
    TokenShare,
    asked_words,
    complete_words,
    largest,
    method_words,
    notes_of,
    shares_of,
)
from inspector.state.session_tree import Item

LISTED = 12
"""Tokens in the table of a page or a terminal: the largest."""
COLORED = 512
"""Tokens of the colored text of a page at most: the last ones."""
COLUMNS = (
    Column("token"),
    number("place"),
    number("share"),
    number("logits"),
    Column(cells=(4, 999), priority=2),
)


def heading(read: GradientsRead) -> str:
    """The question."""
    return f"What {asked_words(read)} hangs on: {method_words(read)}"


def document(read: GradientsRead, path: Sequence[Item]) -> Iterator[Block]:
    """The text with its shares, then the largest of them, and the sum of the others; nothing without any share."""
    shares = shares_of(read, path)
    if not shares:
        return
    pieces = ((visible(path[each.place].text), each.share, f"{signed(each.value)} logits") for each in shares)
    yield HeatText((*pieces,)[-COLORED:])
    yield sentence(f"{asked_words(read)}: {method_words(read)}.")
    yield from listed(read, largest(shares), most=LISTED)


def listed(
    read: GradientsRead, shares: Sequence[TokenShare], at: int | None = None, most: int | None = None
) -> Iterator[Block]:
    """A row for each share, and sentences about them.

    Args:
        read: The answer.
        shares: The largest first.
        at: The index of the selected row; None for none.
        most: The rows at most; the others are summed in one more row. None for all.
    """
    rows = [_row(each.label, f"{each.place + 1:,}", each.share, each.value) for each in shares[:most]]
    if left := shares[most:] if most is not None else []:
        sums = math.fsum(each.share for each in left), math.fsum(each.value for each in left)
        rows.append(_row(f"{count(len(left))} others", "", *sums, tone="muted"))
    yield Table(COLUMNS, rows, at, least=6)
    said = [complete_words(read), *notes_of(read), MEANINGS[read.method]]
    yield from sentences([f"{method_words(read).capitalize()}.", *said] if at is not None else said)


def _row(label: str, place: str, share: float, value: float, tone: str = "") -> TableRow:
    cells = label, place, f"{signed(100 * share, 1)}%", signed(value), Bar(value)
    return TableRow(cells[:-1] if tone else cells, "muted" if tone else "")


GRADIENTS_PART = ExportPart(
    "gradients", looked_at(GradientsRead, "gradients", heading, document, explains=True)
)
