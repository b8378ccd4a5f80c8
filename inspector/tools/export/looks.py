"""What was looked at inside the model, as compact JSON for the web page: where heads look, and the logit lens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.records import AttentionRead, LensRead
from inspector.display import token_label
from inspector.state.inside.looks import Looks
from inspector.tools.export.numbers import millionths

LEAST = 0.004
"""Weights below are left out: no token's colour shows them."""


def looks(looks: Looks, places: Mapping[int, int]) -> list[list[Any]]:
    """Rows of the tokens that were looked at, each with its attention and its lens, or null.

    Args:
        looks: Of the session.
        places: Row of each node.
    """
    nodes = [node for node in {**looks.attention, **looks.lens} if node in places]
    return [
        [places[node], _attention(looks.attention.get(node)), _lens(looks.lens.get(node), places)]
        for node in nodes
    ]


def _attention(read: AttentionRead | None) -> list[Any] | None:
    """For each head its layer and number, from 1, then pairs of a place in the path and a weight in per mille."""
    if read is None:
        return None
    return [
        [layer.layer + 1, head + 1, *_weights(layer.over(head, read.tokens))]
        for layer in read.layers
        for head in range(layer.heads)
    ]


def _weights(row: tuple[float, ...]) -> list[int]:
    pairs = [(place, round(weight * 1000)) for place, weight in enumerate(row) if weight >= LEAST]
    return [number for pair in pairs for number in pair]


def _lens(read: LensRead | None, places: Mapping[int, int]) -> list[Any] | None:
    """For each position its row and its cells, the embedding's first: label, probability, rank of the final token."""
    if read is None:
        return None
    return [
        [
            places.get(column.node, -1),
            [
                [token_label(cell.top[0].text, b""), millionths(cell.top[0].prob), cell.final_rank]
                for cell in column.cells
                if cell.top
            ],
        ]
        for column in read.columns
    ]
