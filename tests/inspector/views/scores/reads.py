"""Scores of a head made by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence

from engine.protocol import CaptureFacts, Check, ScoreRead, ScoreWriter, floats

FACTS = CaptureFacts(
    (Check("forward", 0.0, 0.0), Check("scores", 3e-7, 1e-4), Check("weights", 2e-7, 1e-4)),
    30.0,
    10.0,
    "llama",
)
WRITERS = (
    ScoreWriter("embedding", None, ""),
    ScoreWriter("attention", 0, "self_attn", 0),
    ScoreWriter("attention", 0, "self_attn", 1),
    ScoreWriter("mlp", 0, "mlp"),
    ScoreWriter("constant", None, ""),
)
BY_KEY = ((0.5, 0.5, 0.5, 0.5), (0.0, 3.0, 0.0, 0.0), (0.0, 0.0, -1.0, 0.5), (1.0, 0.5, 0.0, 0.0), (0.0,) * 4)
"""A row for each writer, a column for each key: the first three tokens and the last."""
BY_QUERY = (
    (1.0, 3.0, -0.5, 1.0),
    (0.25, 0.5, 0.0, 0.0),
    (0.0, 0.5, 0.0, 0.0),
    (0.25, 0.0, 0.0, 0.0),
    (0.0,) * 4,
)
PAIRS = ((0, 1), (3, 2))
PAIR_SCORES = ((0.0, 2.5, 0.0, 0.0), (0.0, 0.0, -1.0, 0.0))


def read(
    node: int,
    tokens: int,
    layer: int = 1,
    head: int = 0,
    facts: CaptureFacts = FACTS,
    pairs: Sequence[tuple[int, int]] = PAIRS,
    notes: tuple[str, ...] = (),
) -> ScoreRead:
    """A head that looks most at the second token of the path: the first head of layer 1 wrote into it."""
    scores = [sum(column) for column in zip(*BY_KEY, strict=True)]
    shares = [math.exp(score) for score in scores]
    return ScoreRead(
        node,
        layer,
        head,
        tokens,
        tokens,
        (0, 1, 2, tokens - 1),
        floats(scores, (4,)),
        floats([share / sum(shares) for share in shares], (4,)),
        WRITERS,
        floats([each for row in BY_KEY for each in row], (5, 4)),
        floats([each for row in BY_QUERY for each in row], (5, 4)),
        tuple(pairs),
        floats([each for row in PAIR_SCORES[: len(pairs)] for each in row], (len(pairs), 4)),
        2,
        False,
        notes,
        facts,
    )
