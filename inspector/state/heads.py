"""Attention heads: their weights over a path, their orders, and their roles in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from statistics import fmean
from typing import NamedTuple

from engine.protocol import AttentionLayer, AttentionRead, HeadScore, HeadsScored
from inspector.scales import count, percent

# ---- weights of a head --------------------------------------------------------------------------

MEAN, MAX = -2, -1
"""In the place of a head: the mean of a layer's heads, and for each token the largest of their weights."""
NAMES = {MEAN: "avg", MAX: "max"}
RESTS = 0.5
"""The share of a row from which on a head is said to rest on the first token, or on its sink."""


class Head(NamedTuple):
    """A head of a layer, or what stands for all heads of it; both count from 0."""

    layer: int
    head: int

    @property
    def name(self) -> str:
        """Counted from 1: `L6 h2`, `L6 avg`."""
        return f"L{self.layer + 1} {NAMES.get(self.head) or f'h{self.head + 1}'}"

    @property
    def title(self) -> str:
        """The same in words."""
        whole = {MEAN: "the mean of its heads", MAX: "the maximum of its heads"}
        return f"layer {self.layer + 1}, {whole.get(self.head) or f'head {self.head + 1}'}"


def columns(layer: AttentionLayer) -> tuple[int, ...]:
    """The columns of a layer: its heads, their mean, their maximum."""
    return (*range(layer.heads), MEAN, MAX)


def weights_of(layer: AttentionLayer, head: int, tokens: int) -> tuple[float, ...]:
    """The weights of a head, or of what stands for all of them, over a path.

    Args:
        layer: Its weights.
        head: From 0, or `MEAN`, `MAX`.
        tokens: Of the path.
    """
    row = layer.over(head, tokens) if head >= 0 else _over_heads(layer, head, tokens)
    return row if math.isfinite(sum(row)) else (0.0,) * tokens  # a file may say anything


@lru_cache(maxsize=64)
def _over_heads(layer: AttentionLayer, which: int, tokens: int) -> tuple[float, ...]:
    rows = zip(*(layer.over(head, tokens) for head in range(layer.heads)), strict=True)
    return tuple(map(max if which == MAX else fmean, rows))


def sink_of(layer: AttentionLayer, head: int) -> float:
    """The share that the sink of a head takes; 0 where there is none."""
    if len(layer.sinks) <= max(head, 0):
        return 0.0
    return layer.sinks[head] if head >= 0 else (max if head == MAX else fmean)(layer.sinks)


def stretches(weights: Sequence[float], count: int) -> list[float]:
    """The path in at most `count` stretches of equal length: of each the largest weight, since peaks are looked for.

    Where there is room for several cells a token, each token has as many.
    """
    tokens = len(weights)
    if 0 < tokens <= count:
        return [weight for weight in weights for _ in range(count // tokens)]
    ends = [(place * tokens // count, (place + 1) * tokens // count) for place in range(count)]
    return [max(weights[first:end], default=0.0) for first, end in ends]


def entropy_bits(weights: Sequence[float], sink: float = 0.0) -> float:
    """Entropy of a row of weights, its sink's share as one more outcome."""
    return -sum(share * math.log2(share) for share in (*weights, sink) if share > 0)


def most_focused(read: AttentionRead) -> Head | None:
    """The head to begin with: of those with half of their attention on one token the one whose token is furthest back.

    The first token is left out, since heads rest there that have nothing to do. Without such a head it is the one with
    the largest weight.
    """
    found = []
    for layer in read.layers:
        for head in range(layer.heads):
            row = layer.over(head, read.tokens)
            weight, back = max(((weight, -place) for place, weight in enumerate(row[1:])), default=(1.0, 0))
            found.append((weight >= RESTS, back if weight >= RESTS else 0, weight, Head(layer.layer, head)))
    return max(found)[-1] if found else None


# ---- orders of heads ----------------------------------------------------------------------------


class Order(NamedTuple):
    """An order of heads."""

    name: str
    meaning: str


ORDERS = (
    Order("by place", "a row for each layer, a column for each head"),
    Order("previous token", "mean share on the token right before"),
    Order("same token again", "induction: mean share on what followed earlier occurrences of the token that looks"),
    Order("duplicate token", "mean share on earlier occurrences of the token that looks"),
    Order("first token", "mean share on the first token"),
    Order("widest", "mean entropy of where it looks, in bits"),
)  # fmt: skip
"""In the order in which a key goes through them."""


def score(of: HeadScore, order: int) -> float | None:
    """The score that an order sorts by; None where the text has nothing to score."""
    return (None, of.previous, of.induction, of.duplicate, of.first, of.entropy_bits)[order]


def ranked(scores: Sequence[HeadScore], order: int) -> list[HeadScore]:
    """The heads, the highest score first; without a score by place."""
    return sorted(scores, key=lambda each: -(score(each, order) or 0.0))


# ---- their roles --------------------------------------------------------------------------------

NAMED = 0.4
"""The mean share from which on a head is named by what it does, as in ARENA's exercises."""
LISTED = 4
"""Heads of a name that are listed."""


class HeadRole(NamedTuple):
    """Something that heads are known to do."""

    name: str
    score: Callable[[HeadScore], float | None]


ROLES = (
    HeadRole("previous-token", lambda each: each.previous),
    HeadRole("induction", lambda each: each.induction),
    HeadRole("duplicate-token", lambda each: each.duplicate),
)


def names_of(score: HeadScore) -> tuple[str, ...]:
    """The roles of a head whose scores are above the threshold: `previous-token`."""
    return tuple(role.name for role in ROLES if (role.score(score) or 0.0) >= NAMED)


def measured_on(scored: HeadsScored) -> str:
    """The texts that heads were scored on."""
    if (texts := scored.texts) is None:
        return f"{count(scored.tokens)} tokens of this path"
    return (
        f"{count(texts.count)} text{'s' * (texts.count != 1)} of {count(texts.length)} random tokens, each "
        f"repeated once (seed {texts.seed})"
    )


def best_of(role: HeadRole, heads: Sequence[HeadScore]) -> list[tuple[float, HeadScore]]:
    """The heads that have a role's score, the highest first."""
    found = [(value, each) for each in heads if (value := role.score(each)) is not None]
    return sorted(found, key=lambda pair: -pair[0])


def found_words(scored: HeadsScored) -> tuple[str, ...]:
    """A sentence for each role: the heads above the threshold, or that there is none."""
    return tuple(_role_words(role, scored) for role in ROLES)


def _role_words(role: HeadRole, scored: HeadsScored) -> str:
    best = best_of(role, scored.heads)
    if not best:
        why = "nothing to score: no token occurs again" if scored.heads else "no head whose weights are known"
        return f"{role.name.capitalize()} heads: {why}."
    above = [pair for pair in best if pair[0] >= NAMED]
    if not above:
        where = "in this model" if scored.texts is not None else "on this text"
        return f"No {role.name} head {where}: at most {_head(*best[0])}, named from {percent(NAMED)} on."
    more = f" and {len(above) - LISTED} more" if len(above) > LISTED else ""
    listed = ", ".join(_head(*pair) for pair in above[:LISTED])
    if scored.texts is None:  # what it does on one text makes it no head of a kind
        return f"{role.name.capitalize()} attention on this text: {listed}{more}."
    return f"{role.name.capitalize()} head{'s' * (len(above) > 1)}: {listed}{more}."


def _head(value: float, each: HeadScore) -> str:
    return f"L{each.layer + 1} h{each.head + 1} ({percent(value)})"
