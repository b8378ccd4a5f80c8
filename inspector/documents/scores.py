"""The score of a head for one key: the shares of the key's writers, of the query's writers, and of pairs of them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence

from engine.protocol import ScoreRead
from inspector.blocks.blocks import (
    GAP,
    Bar,
    Beside,
    Block,
    Column,
    Table,
    TableRow,
    number,
    sentence,
    sentences,
)
from inspector.blocks.paint import READABLE
from inspector.display import quoted, token_label, visible
from inspector.documents.parts import ExportPart, looked_at
from inspector.scales import count, signed
from inspector.state.attribution import (
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
"""Rows of a table of a page or a terminal."""
BESIDE = 76
"""Cells from which on the tables of the key and of the query are side by side."""
SAYS = (
    "What each writer makes of the head's score against the mean over its keys, with the norms held. These are direct "
    "effects: who wrote what, not why."
)
FROZEN = "Norms are held as they are, so that parts sum to the score. It shows direct effects: who wrote what, not why."


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
    yield sentence(_about(read, labels, place, versus))
    yield from _tables(read, labels, place, versus, MOST)
    yield from sentences([SAYS, *map(visible, read.notes)], "")


def view(read: ScoreRead, path: Sequence[Item], key: int, versus: int | None) -> Iterator[Block]:
    """The same for a panel, with as many shares as there is room for."""
    labels = [token_label(each.text, each.raw) for each in path]
    yield sentence(in_words(read, labels, key, versus), tone="strong")
    yield sentence(_about(read, labels, key, versus), tone="muted")
    yield GAP
    of_key, of_query, *of_pairs = _tables(read, labels, key, versus)
    yield Beside((of_key,), (of_query,), BESIDE, (0, READABLE), share=0.5)
    yield GAP
    yield from of_pairs
    yield GAP
    yield from sentences(map(visible, read.notes))
    yield sentence(FROZEN, tone="muted", priority=1)


def _about(read: ScoreRead, labels: Sequence[str], key: int, versus: int | None) -> str:
    """The score, and what it is compared with."""
    scores = read.scores.row()
    if len(scores) != len(read.keys):
        return ""
    kept = f"{count(len(read.keys))} keys"
    if len(read.keys) < read.visible:
        kept = f"{kept} of {count(read.visible)} (the heaviest, the first, the last)"
    mean = f"the mean of {kept}"
    if versus is not None:
        mean = f"token {versus + 1} {quoted(labels[versus])}"
    score, more = scores[read.keys.index(key)], compared_to(read, scores, key, versus)
    before = " before the softcap" if read.softcap else ""
    return f"Token {key + 1}: score {signed(score)}{before}, {signed(more)} against {mean}."


def _tables(
    read: ScoreRead, labels: Sequence[str], key: int, versus: int | None, most: int | None = None
) -> Iterator[Table]:
    """The shares of the key's writers, of the query's, and of pairs of them, of which only the largest are known."""
    query = labels[-1] if labels else ""
    yield _table(f"In the key {quoted(labels[key])}", "In the key", key_shares(read, key, versus), most)
    yield _table(f"In the query {quoted(query)}", "In the query", query_shares(read, key, versus), most)
    if pairs := pair_shares(read, key, versus):
        yield _table("Query × key", "", pairs, most, every=False)


def _table(
    head: str, short: str, shares: Sequence[ScoreShare], most: int | None, every: bool = True
) -> Table:
    """The largest shares, and the sum of the others, or their number."""

    def others(seen: Collection[int]) -> TableRow | None:
        left = [each.value for place, each in enumerate(shares) if place not in seen]
        if not left:
            return None
        name, value = ("others", signed(math.fsum(left))) if every else ("more", "")
        return TableRow((f"{count(len(left))} {name}", value), "muted")

    columns = Column(head, short=short), number("score"), Column(cells=(8, 999), ends=((), ()))
    rows = [TableRow((each.name, signed(each.value), Bar(each.value))) for each in shares[:most]]
    return Table(columns, rows, rest=others)


SCORES_PART = ExportPart("scores", looked_at(ScoreRead, "scores", heading, document))
