"""Contributions made by hand."""

from __future__ import annotations

from collections.abc import Sequence

from engine.protocol import (
    AttributedToken,
    AttributionRead,
    CaptureFacts,
    Check,
    Contribution,
    Floats,
    floats,
)

FACTS = CaptureFacts(
    (Check("forward", 0.0, 0.0), Check("lens", 0.0, 1e-5), Check("parts", 1e-7, 1e-5)), 30.0, 10.0, "llama"
)
WRITERS = (("embedding", None, 0.25), ("attention", 0, 1.5), ("mlp", 0, -0.5), ("attention", 1, -4.0),
           ("mlp", 1, 6.0), ("constant", None, 0.0))  # fmt: skip
"""What each adds to the first token; to the second one a fifth less its sign."""


def read(
    node: int,
    ids: Sequence[int],
    texts: Sequence[str] = (" toys", "[odd]"),
    facts: CaptureFacts = FACTS,
    softcap: bool = False,
    notes: tuple[str, ...] = (),
    rest: float = 0.0,
) -> AttributionRead:
    """A sum of writers, each attention with two heads: three quarters and a quarter of it, less the rest."""
    parts = []
    for kind, layer, value in WRITERS:
        logits = (value, -value / 5)[: len(ids)]
        heads, left = Floats((0, 0), b""), ()
        if kind == "attention":
            shares = [share * (each - rest) for share in (0.75, 0.25) for each in logits]
            heads, left = floats(shares, (2, len(ids))), (rest,) * len(ids)
        parts.append(Contribution(kind, layer, kind, logits, heads, left))  # type: ignore[arg-type]
    sums = [sum(part.logits[place] for part in parts) for place in range(len(ids))]
    tokens = tuple(
        AttributedToken(id, text, 0.5, rank, total / 2 if softcap else total, total)
        for rank, (id, text, total) in enumerate(zip(ids, texts, sums, strict=False), 1)
    )
    return AttributionRead(node, tokens, tuple(parts), 2, softcap, notes, facts)
