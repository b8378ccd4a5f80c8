"""The score of a head for one key: the shares of the key's writers, of the query's writers, and of pairs of them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache

from msgspec import Struct

from engine.protocol import Floats, ScoreRead, ScoreWriter
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
from inspector.display import visible
from inspector.documents.attribution import writer_name
from inspector.documents.parts import ExportPart, looked_at
from inspector.scales import count, percent, signed
from inspector.state.session_tree import Item, place_name, quoted_label

MOST = 10
"""Maximum rows of a table on a page or a terminal."""
BESIDE = 76
"""Cells from which the tables of the key and of the query are side by side."""
SAYS = (
    "What each writer adds to the head's score, against the mean over its keys, with the norms held fixed. Direct "
    "effects only."
)
FROZEN = "Norms are held fixed, so that the parts add up to the score. Direct effects only."


# ---- why a head looks at a token ----------------------------------------------------------------


class ScoreShare(Struct, frozen=True):
    """The share of a writer, or of a pair of writers, in the difference between one key's score and others'."""

    name: str
    """Printable; for a pair, the query's writer, then the key's."""
    value: float
    """Positive if it favors the key that is looked at."""


def score_writer_name(writer: ScoreWriter) -> str:
    """The name of a writer: `embedding`, `L3 h2`, `L3 MLP`; `biases` for the constant. Printable."""
    if writer.kind == "constant":
        return "biases"
    if writer.head is not None:
        return f"L{(writer.layer or 0) + 1} h{writer.head + 1}"
    return writer_name(writer.kind, writer.layer, writer.name)


@lru_cache(maxsize=64)
def weights_of(read: ScoreRead) -> tuple[float, ...]:
    """The head's weight on each kept key; empty if the record is inconsistent, as one from a file may be."""
    weights = read.weights.row()
    fits = len(weights) == len(read.keys) and all(map(math.isfinite, weights))
    ordered = all(0 <= place < read.tokens for place in read.keys) and len(set(read.keys)) == len(read.keys)
    return weights if fits and ordered and read.keys else ()


def over_path(read: ScoreRead, tokens: int) -> list[float]:
    """The head's weights over a path, 0 for keys that are not kept.

    Args:
        read: The answer.
        tokens: Length of the path.
    """
    weights = dict(zip(read.keys, weights_of(read), strict=False))
    return [weights.get(place, 0.0) for place in range(tokens)]


def by_weight(read: ScoreRead) -> list[int]:
    """The kept keys by their indices in the path, the heaviest first."""
    return [place for _, place in sorted(zip((-each for each in weights_of(read)), read.keys, strict=False))]


def compared_to(read: ScoreRead, row: Sequence[float], key: int, against: int | None) -> float:
    """One key's number minus another's, or minus the mean over all kept keys; 0 if it can't be computed.

    Args:
        read: Provides the keys.
        row: A number for each key.
        key: Index of the key in the path.
        against: Index of another key; None for the mean.
    """
    keys = read.keys
    if len(row) != len(keys) or key not in keys or (against is not None and against not in keys):
        return 0.0
    base = math.fsum(row) / len(row) if against is None else row[keys.index(against)]
    value = row[keys.index(key)] - base
    return value if math.isfinite(value) else 0.0


def _shares(
    read: ScoreRead, names: Sequence[str], rows: Floats, key: int, against: int | None
) -> list[ScoreShare]:
    found = (
        ScoreShare(name, compared_to(read, rows.row(place), key, against)) for place, name in enumerate(names)
    )
    return sorted(found, key=lambda share: -abs(share.value))


def key_shares(read: ScoreRead, key: int, against: int | None = None) -> list[ScoreShare]:
    """The shares of the keys' writers in the difference, the largest first."""
    return _shares(read, [score_writer_name(each) for each in read.writers], read.by_key, key, against)


def query_shares(read: ScoreRead, key: int, against: int | None = None) -> list[ScoreShare]:
    """The shares of the query's writers in the difference, the largest first."""
    return _shares(read, [score_writer_name(each) for each in read.writers], read.by_query, key, against)


def pair_shares(read: ScoreRead, key: int, against: int | None = None) -> list[ScoreShare]:
    """The shares of the kept pairs of a query's writer and a key's in the difference, the largest first."""
    names = [score_writer_name(each) for each in read.writers]
    known = all(0 <= place < len(names) for pair in read.pairs for place in pair)
    pairs = [f"{names[query]} × {names[of_key]}" for query, of_key in read.pairs] if known else []
    return _shares(read, pairs, read.pair_scores, key, against)


def head_name(read: ScoreRead) -> str:
    """The head, counted from 1: `L5 h3`."""
    return f"L{read.layer + 1} h{read.head + 1}"


def labels_of(path: Sequence[Item]) -> list[str]:
    """The tokens of a path in quotation marks, with their places if several have the same text; printable."""
    labels = [*map(quoted_label, path)]
    often, named = Counter(labels), zip(labels, path, strict=True)
    return [f"{label} {place_name(item)}" if often[label] > 1 else label for label, item in named]


def in_words(read: ScoreRead, labels: Sequence[str], key: int, against: int | None = None) -> str:
    """Why the head looks at a key, in a sentence.

    Args:
        read: The answer.
        labels: Labels of the path's tokens, printable: see `labels_of`.
        key: Index of the key in the path.
        against: The key that it is compared with; None for the mean of all.
    """
    weights = dict(zip(read.keys, weights_of(read), strict=False))

    def weighed(place: int) -> str:
        label = labels[place] if place < len(labels) else f"token {place + 1}"
        return f"{label} ({percent(weights.get(place, 0.0))})"

    whole = compared_to(read, read.scores.row(), key, against)
    looks = f"{head_name(read)} looks at {weighed(key)}"
    if against is not None:
        looks = f"{looks} {'more' if whole >= 0 else 'less'} than at {weighed(against)}"
    elif whole < 0:
        looks = f"{looks} rather little,"
    best = next((share for share in key_shares(read, key, against) if share.value * whole > 0), None)
    if best is None:
        return f"{looks}: no writer of the key stands out."
    much = "mostly" if 2 * abs(best.value) >= abs(whole) else "above all"
    wrote = f"{'' if best.value > 0 else 'of what '}{best.name} wrote into it"
    wrote = {"embedding": "of its embedding", "biases": "of the layer's biases"}.get(best.name, wrote)
    return f"{looks} {much} because {wrote} ({signed(best.value)} of {signed(whole)})."


# ---- the document -------------------------------------------------------------------------------


def heading(read: ScoreRead) -> str:
    return f"Why {head_name(read)} looks there"


def document(
    read: ScoreRead, path: Sequence[Item], key: int | None = None, versus: int | None = None
) -> Iterator[Block]:
    """A sentence about a key, and the largest shares; nothing if there are no keys.

    Args:
        read: The scores.
        path: The tokens up to the one that looks.
        key: The index of the key's token; None for the heaviest.
        versus: The index of the token that it is compared with; None for the mean of all keys.
    """
    place = key if key is not None else next(iter(by_weight(read)), None)
    if place is None:
        return
    labels = labels_of(path)
    yield sentence(in_words(read, labels, place, versus), tone="strong")
    yield sentence(_about(read, labels, place, versus))
    yield from _tables(read, labels, place, versus, MOST)
    yield from sentences([SAYS, *map(visible, read.notes)], "")


def view(read: ScoreRead, path: Sequence[Item], key: int, versus: int | None) -> Iterator[Block]:
    """See `document`; for a panel, with as many shares as fit."""
    labels = labels_of(path)
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
        mean = labels[versus]
    score, more = scores[read.keys.index(key)], compared_to(read, scores, key, versus)
    before = " before the softcap" if read.softcap else ""
    return f"Its score is {signed(score)}{before}, {signed(more)} against {mean}."


def _tables(
    read: ScoreRead, labels: Sequence[str], key: int, versus: int | None, most: int | None = None
) -> Iterator[Table]:
    """The shares of the key's writers, of the query's, and of pairs, of which only the largest are known."""
    query, writers = labels[-1] if labels else "", len(read.writers)
    of_key, of_query, pairs = (
        shares(read, key, versus) for shares in (key_shares, query_shares, pair_shares)
    )
    whole = compared_to(read, read.scores.row(), key, versus)
    yield _table(f"In the key {labels[key]}", "In the key", of_key, most, writers, whole)
    yield _table(f"In the query {query}", "In the query", of_query, most, writers, whole)
    if pairs:
        yield _table("Query × key", "", pairs, most, writers**2, whole)


def _table(
    head: str, short: str, shares: Sequence[ScoreShare], most: int | None, number_of_all: int, whole: float
) -> Table:
    """The largest shares, and the sum of the others, which completes the whole."""

    def others(seen: Collection[int]) -> TableRow | None:
        if not (left := number_of_all - len(seen)):
            return None
        value = whole - math.fsum(shares[place].value for place in seen)
        return TableRow((f"{count(left)} others", signed(value)), "muted")

    columns = Column(head, short=short), number("score"), Column(cells=(8, 999), ends=((), ()))
    rows = [TableRow((each.name, signed(each.value), Bar(each.value))) for each in shares[:most]]
    return Table(columns, rows, rest=others)


SCORES_PART = ExportPart("scores", looked_at(ScoreRead, "scores", heading, document))
