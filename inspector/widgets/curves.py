"""Curves in braille dots, several on one chart: pure functions from numbers to text. Eight dots a cell, two by four."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import pairwise

from engine.frozen import frozen

DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""Bits of a cell: two columns, each from the top."""
BLANK = 0x2800


@frozen
class Cell:
    """One cell of a chart."""

    char: str
    series: int | None
    """The curve that it belongs to, None where it is empty; of several the last."""


def curves(series: Sequence[Sequence[float]], width: int, height: int, top: float) -> list[list[Cell]]:
    """Draw curves over one another, from a zero line.

    Args:
        series: Of equal length, not below zero.
        width: Cells.
        height: Cells.
        top: The value at the upper edge.

    Returns:
        The lines, the highest first, each of `width` cells.
    """
    bits = [[0] * width for _ in range(height)]
    owner: list[list[int | None]] = [[None] * width for _ in range(height)]
    for number, values in enumerate(series):
        for column, row in _dots(binned(values, 2 * width), 4 * height, top):
            cell = row // 4, column // 2
            bits[cell[0]][cell[1]] |= DOTS[column % 2][row % 4]
            owner[cell[0]][cell[1]] = number
    return [
        [Cell(chr(BLANK + bit) if bit else " ", own) for bit, own in zip(line, owners, strict=True)]
        for line, owners in zip(bits, owner, strict=True)
    ]


def binned(values: Sequence[float], columns: int) -> list[float]:
    """As many values as columns: medians of neighbours where there are more, repeated where there are fewer."""
    if not values:
        return []
    edges = [column * len(values) // columns for column in range(columns + 1)]
    return [statistics.median(values[low : max(low + 1, high)]) for low, high in pairwise(edges)]


def _dots(values: Sequence[float], rows: int, top: float) -> list[tuple[int, int]]:
    """Column and row (from the top) of every dot, neighbours joined."""
    dots, before = [], None
    for column, value in enumerate(values):
        share = min(1.0, max(0.0, value / top)) if top > 0 else 0.0
        row = rows - 1 - round(share * (rows - 1))
        # the upright part of a stair belongs to the column where it is reached
        start = row if before is None else before + (row > before) - (row < before)
        dots += [(column, dot) for dot in range(min(start, row), max(start, row) + 1)]
        before = row
    return dots


def round_top(value: float) -> float:
    """The next round number, for the upper edge of a chart: one digit, or 1.5 or 2.5, and zeros."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(
        (step * power for step in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8) if value <= step * power), 10 * power
    )
