"""Where heads looked, as compact JSON for the web page, whose text takes their colours; see also `evidence`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.protocol import AttentionRead
from inspector.state.inside import Looks

LEAST = 0.004
"""Weights below are left out: no token's colour shows them."""


def looks(looks: Looks, places: Mapping[int, int]) -> list[list[Any]]:
    """Rows of the tokens that were looked at, each with its attention.

    Args:
        looks: Of the session.
        places: Row of each node.
    """
    return [[places[node], _attention(read)] for node, read in looks.attention.items() if node in places]


def _attention(read: AttentionRead) -> list[Any]:
    """For each head its layer and number, from 1, then pairs of a place in the path and a weight in per mille."""
    return [
        [layer.layer + 1, head + 1, *_weights(layer.over(head, read.tokens))]
        for layer in read.layers
        for head in range(layer.heads)
    ]


def _weights(row: tuple[float, ...]) -> list[int]:
    pairs = [(place, round(weight * 1000)) for place, weight in enumerate(row) if weight >= LEAST]
    return [number for pair in pairs for number in pair]
