"""Weights of heads over a path, and what is read off them: pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import fmean
from typing import NamedTuple

from engine.protocol import AttentionLayer, AttentionRead, HeadScore

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
    """What can be chosen in a layer: its heads, their mean, their maximum."""
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
    """What the sink of a head takes; 0 where there is none."""
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


def telling(read: AttentionRead) -> Head | None:
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


class Order(NamedTuple):
    """A way to sort heads."""

    name: str
    meaning: str
    short: str


ORDERS = (
    Order("by place", "a row for each layer, a column for each head", "place"),
    Order("previous token", "share on the token right before, mean over the text", "previous"),
    Order("same token again", "induction: share on what followed earlier occurrences of the token that looks",
          "induction"),
    Order("first token", "share on the first token, mean over the text", "first"),
    Order("widest", "entropy of where it looks, in bits, mean over the text", "width"),
)  # fmt: skip
"""In the order in which a key goes through them."""


def score(of: HeadScore, order: int) -> float | None:
    """What heads are sorted by; None where the text has nothing to score."""
    return (None, of.previous, of.induction, of.first, of.entropy_bits)[order]


def ranked(scores: Sequence[HeadScore], order: int) -> list[HeadScore]:
    """The heads, the highest score first; without a score by place."""
    return sorted(scores, key=lambda each: -(score(each, order) or 0.0))
