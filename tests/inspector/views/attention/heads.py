"""Answers about attention, made by hand for a path of the fake session."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.protocol import (
    AttentionLayer,
    AttentionRead,
    CaptureFacts,
    Check,
    HeadScore,
    HeadsScored,
    TriangleRead,
    floats,
)

FACTS = CaptureFacts(
    (
        Check("forward", 0.0, 0.0),
        Check("attention", 1e-7, 1e-5, "layer 1"),
        Check("rows", 2e-7, 1e-5, "layer 1"),
    ),
    12.0,
    4.0,
    "llama",
)
FAILED = CaptureFacts(
    (Check("forward", 0.0, 0.0), Check("attention", 0.25, 1e-5, "layer 2")), 12.0, 4.0, "strange"
)


def on(place: int, tokens: int, share: float = 0.9) -> list[float]:
    """A row with a share on one place and the rest spread evenly over the others."""
    rest = (1 - share) / max(1, tokens - 1)
    return [share if at == place else rest for at in range(tokens)]


def read(
    node: int,
    tokens: int,
    rows: Callable[[int, int], Sequence[float]],
    layers: int = 3,
    heads: int = 2,
    facts: CaptureFacts = FACTS,
    sinks: tuple[float, ...] = (),
    missing: tuple[str, ...] = (),
) -> AttentionRead:
    """An answer whose rows are `rows(layer, head)`."""
    made = tuple(
        AttentionLayer(
            layer,
            "fused",
            heads,
            floats([share for head in range(heads) for share in rows(layer, head)], (heads, tokens)),
            tokens,
            sinks,
        )
        for layer in range(layers)
    )
    return AttentionRead(node, tokens, made, layers, missing, facts)


def triangle(node: int, layer: int, head: int, tokens: int, window: int = 10_000) -> TriangleRead:
    """A head that looks at the token before, within a window."""
    rows = [
        [0.0 if place - at >= window else 0.9 if at == max(0, place - 1) else 0.01 for at in range(place + 1)]
        for place in range(tokens)
    ]
    flat = [share for row in rows for share in row]
    return TriangleRead(
        node, layer, head, tokens, floats(flat, (len(flat),), 16), floats([], (0,), 16), FACTS
    )


def scores(node: int, tokens: int, layers: int = 3, heads: int = 2, repeats: int = 2) -> HeadsScored:
    """Each head has other scores: the last layer's last head is the most inductive, the first one's the widest."""
    made = tuple(
        HeadScore(
            layer,
            head,
            0.5 if (layer, head) == (1, 0) else 0.1,
            (layer * heads + head) / 10 if repeats else None,
            0.8 if (layer, head) == (0, 1) else 0.05,
            5.0 - layer - head / 2,
            0.6 if (layer, head) == (2, 0) else 0.02 if repeats else None,
        )
        for layer in range(layers)
        for head in range(heads)
    )
    return HeadsScored(node, tokens, made, repeats, FACTS)
