"""The score of a head for one key: the shares of the key's writers, of the query's writers, and of pairs of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from engine.protocol import ScoreRead
from inspector.blocks.blocks import Bar, Block, Column, Table, TableRow, number, sentence, sentences
from inspector.display import token_label, visible
from inspector.scales import count, signed
from inspector.state.scores import (
    ScoreShare,
    by_weight,
    compared_to,
    head_name,
    in_words,
    key_shares,
    pair_shares,
    query_shares,
)
from inspector.state.session_tree import Item

MOST = 10
"""Rows of a table."""
SAYS = (
    "What each writer makes of the head's score against the mean over its keys, with the norms held. These are direct "
    "effects: who wrote what, not why."
)


def heading(read: ScoreRead) -> str:
    """The question."""
    return f"Why {head_name(read)} looks there"


def document(
    read: ScoreRead, path: Sequence[Item], key: int | None = None, versus: int | None = None
) -> Iterator[Block]:
    """A sentence about a key, and the largest shares; nothing without any key.

    Args:
        read: The scores.
        path: The tokens up to the one that looks.
        key: The index of the key's token; None for the heaviest.
        versus: The index of the token that it is compared with; None for the mean of all keys.
    """
    place = key if key is not None else next(iter(by_weight(read)), None)
    if place is None:
        return
    labels = [token_label(each.text, each.raw) for each in path]
    yield sentence(in_words(read, labels, place, versus), tone="strong")
    score = signed(compared_to(read, read.scores.row(), place, versus))
    base = f"the mean of {count(len(read.keys))} keys" if versus is None else f"token {versus}"
    yield sentence(f"{head_name(read)}, token {place}: its score is {score} against {base}.")
    yield from _table("in the key", key_shares(read, place, versus))
    yield from _table("in the query", query_shares(read, place, versus))
    yield from _table("query × key", pair_shares(read, place, versus), every=False)
    yield from sentences([SAYS, *map(visible, read.notes)], "")


def _table(what: str, shares: Sequence[ScoreShare], every: bool = True) -> Iterator[Block]:
    """The largest shares, and the sum of the others; of pairs, of which only the largest are known, their number."""
    kept, left = shares[:MOST], shares[MOST:]
    rows = [TableRow((each.name, signed(each.value), Bar(each.value))) for each in kept]
    if left and every:
        rows.append(
            TableRow((f"{count(len(left))} others", signed(math.fsum(each.value for each in left))), "muted")
        )
    elif left:
        rows.append(TableRow((f"{count(len(left))} more", ""), "muted"))
    ends = ("lowers it",), ("raises it",)
    if rows:
        yield Table((Column(what), number("score"), Column(cells=(20, 40), ends=ends)), rows)
