"""Why a head looks at a token, for screen, command line and pages: what each writer makes against other keys."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from msgspec import Struct

from engine.protocol import Floats, ScoreRead, ScoreWriter
from inspector.display import quoted
from inspector.scales import percent, signed
from inspector.state.contributions import writer_name


class ScoreShare(Struct, frozen=True):
    """What a writer, or a pair of them, makes of the difference between one key's score and others'."""

    name: str
    """Printable; of a pair the query's writer, then the key's."""
    value: float
    """Positive: for the key that is looked at."""


def score_writer_name(writer: ScoreWriter) -> str:
    """The name of a writer: `embedding`, `L3 h2`, `L3 MLP`; `biases` for what no stream is needed for. Printable."""
    if writer.kind == "constant":
        return "biases"
    if writer.head is not None:
        return f"L{(writer.layer or 0) + 1} h{writer.head + 1}"
    return writer_name(writer.kind, writer.layer, writer.name)


@lru_cache(maxsize=64)
def weights_of(read: ScoreRead) -> tuple[float, ...]:
    """The head's weight on each kept key; nothing where the record doesn't hold together: a file may say anything."""
    weights = read.weights.row()
    fits = len(weights) == len(read.keys) and all(map(math.isfinite, weights))
    ordered = all(0 <= place < read.tokens for place in read.keys) and len(set(read.keys)) == len(read.keys)
    return weights if fits and ordered and read.keys else ()


def over_path(read: ScoreRead, tokens: int) -> list[float]:
    """The head's weights over a path, 0 for keys that are not kept.

    Args:
        read: The answer.
        tokens: Of the path.
    """
    weights = dict(zip(read.keys, weights_of(read), strict=False))
    return [weights.get(place, 0.0) for place in range(tokens)]


def by_weight(read: ScoreRead) -> list[int]:
    """The kept keys by their places in the path, the heaviest first."""
    return [place for _, place in sorted(zip((-each for each in weights_of(read)), read.keys, strict=False))]


def compared_to(read: ScoreRead, row: Sequence[float], key: int, against: int | None) -> float:
    """One key's number less another's, or less the mean over all kept keys; 0 where there are none.

    Args:
        read: Has the keys.
        row: A number for each of them.
        key: A place in the path.
        against: Another; None for the mean.
    """
    if (
        len(row) != len(read.keys)
        or key not in read.keys
        or (against is not None and against not in read.keys)
    ):
        return 0.0
    base = math.fsum(row) / len(row) if against is None else row[read.keys.index(against)]
    value = row[read.keys.index(key)] - base
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
    """What the kept pairs of a query's writer and a key's make of the difference, the largest first."""
    names = [score_writer_name(each) for each in read.writers]
    known = all(0 <= place < len(names) for pair in read.pairs for place in pair)
    pairs = [f"{names[query]} × {names[of_key]}" for query, of_key in read.pairs] if known else []
    return _shares(read, pairs, read.pair_scores, key, against)


def head_name(read: ScoreRead) -> str:
    """The head, counted from 1: `L5 h3`."""
    return f"L{read.layer + 1} h{read.head + 1}"


def in_words(read: ScoreRead, labels: Sequence[str], key: int, against: int | None = None) -> str:
    """Why the head looks at a key, in a sentence.

    Args:
        read: The answer.
        labels: Of the path's tokens, printable.
        key: A place in the path.
        against: The key that it is compared with; None for the mean of all.
    """
    weights = dict(zip(read.keys, weights_of(read), strict=False))
    whole = compared_to(read, read.scores.row(), key, against)
    looks = f"{head_name(read)} looks at {_label(labels, key)} ({percent(weights.get(key, 0.0))})"
    if against is not None:
        more = "more" if whole >= 0 else "less"
        looks = f"{looks} {more} than at {_label(labels, against)} ({percent(weights.get(against, 0.0))})"
    elif whole < 0:
        looks = f"{looks} rather little,"
    same = [share for share in key_shares(read, key, against) if share.value * whole > 0]
    if not same:
        return f"{looks}: no writer of the key stands out."
    best = same[0]
    much = "mostly" if 2 * abs(best.value) >= abs(whole) else "above all"
    return f"{looks} {much} because {_wrote(best)} ({signed(best.value)} of {signed(whole)})."


def _wrote(best: ScoreShare) -> str:
    if best.name == "embedding":
        return "of its embedding"
    if best.name == "biases":
        return "of the layer's biases"
    return f"{'' if best.value > 0 else 'of what '}{best.name} wrote into it"


def _label(labels: Sequence[str], place: int) -> str:
    return quoted(labels[place]) if place < len(labels) else f"token {place + 1}"
