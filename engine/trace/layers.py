"""Layers of a KV group as runs: `0-4 6 8-11`. In a list they would be the largest part of a step's reading."""

from __future__ import annotations

import re
from typing import Any

from engine.trace.shapes import Misfit
from engine.trace.values import brief

LIMIT = 10_000
"""Layers at most."""
_RUNS = re.compile(r"(\d{1,5}(-\d{1,5})?( \d{1,5}(-\d{1,5})?)*)?")


def write(layers: tuple[int, ...]) -> str:
    """Numbers as runs, in their order."""
    runs: list[list[int]] = []
    for layer in layers:
        if runs and layer == runs[-1][1] + 1:
            runs[-1][1] = layer
        else:
            runs.append([layer, layer])
    return " ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in runs)


def read(value: Any) -> tuple[int, ...]:
    """What `write` wrote.

    Raises:
        Misfit: It isn't runs of layers, or has too many layers.
    """
    if type(value) is not str or not _RUNS.fullmatch(value):
        raise Misfit(f"must be runs of layers such as 0-4 6, not {brief(value)}")
    numbers: list[int] = []
    for run in value.split():
        first, _, last = run.partition("-")
        numbers += range(int(first), int(last or first) + 1)
        if len(numbers) > LIMIT:
            raise Misfit(f"has more than {LIMIT} layers")
    return tuple(numbers)
