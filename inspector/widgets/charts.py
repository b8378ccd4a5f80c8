"""Bars and areas of block characters: pure functions from numbers to text, all from a zero line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

EIGHTHS = " ▏▎▍▌▋▊▉█"
HEIGHTS = " ▁▂▃▄▅▆▇█"
OPENS = "┌"
"""Marks where a value begins to hold."""


def bar(share: float, cells: int) -> str:
    """A horizontal bar in eighths of a cell; anything above nothing shows at least one eighth.

    Args:
        share: 0 to 1 of the full length.
        cells: The full length.

    Returns:
        A text of exactly `cells` cells.
    """
    eighths = min(8 * cells, max(0, round(share * 8 * cells)))
    if share > 0 and cells > 0:
        eighths = max(1, eighths)
    full, part = divmod(eighths, 8)
    return ("█" * full + (EIGHTHS[part] if part else "")).ljust(cells)


def area(values: Sequence[float | None], height: int, top: float) -> list[str]:
    """A chart of one column a value, filled from zero.

    Args:
        values: Not below zero; None leaves its column empty.
        height: Lines.
        top: The value that fills the whole height.

    Returns:
        The lines, the highest first. A value above nothing shows at least one eighth of a line.
    """
    levels = [_eighths(value, height, top) for value in values]
    return ["".join(HEIGHTS[_clamp(level - 8 * row)] for level in levels) for row in reversed(range(height))]


def held_values(values: Sequence[int], label: Callable[[int], str]) -> str:
    """A line over a chart: `┌ 2 MiB ╌╌╌╌┌ 4 MiB ╌╌`, where a value begins to hold, and what it is.

    Args:
        values: One a column.
        label: The words for a value; they are left out where they don't fit before the next value.

    Returns:
        A text of as many cells.
    """
    line = ""
    for value, columns in groupby(values):
        cells, words = len(list(columns)), f"{OPENS} {label(value)}"
        line += (f"{words} " if len(words) <= cells else OPENS).ljust(cells, "╌")[:cells]
    return line


def axis(first: str, last: str, cells: int, name: str = "") -> str:
    """The line under a chart: where it begins, what it counts, where it ends.

    Args:
        first: Under the first column.
        last: Under the last one.
        cells: Of the chart.
        name: Between them, where there is room.

    Returns:
        A text of `cells` cells; empty where both ends don't fit.
    """
    room = cells - len(first) - len(last)
    if room < 1:
        return ""
    return f"{first}{name if len(name) + 2 <= room else '':^{room}}{last}"


def shares(parts: Sequence[float], cells: int) -> list[int]:
    """Divide a bar among its parts, whole cells each, by largest remainder.

    Args:
        parts: Not below zero.
        cells: Length of the bar.

    Returns:
        Cells for each part; they add up to the length, or to nothing where all parts are nothing.
    """
    total = sum(parts)
    if total <= 0:
        return [0] * len(parts)
    exact = [part / total * cells for part in parts]
    whole = [int(value) for value in exact]
    order = sorted(range(len(parts)), key=lambda n: exact[n] - whole[n], reverse=True)
    for n in order[: cells - sum(whole)]:
        whole[n] += 1
    return whole


def sample(length: int, columns: int) -> list[int]:
    """Which of `length` values a chart of `columns` columns shows: all, or evenly spaced with the last."""
    if length <= columns:
        return list(range(length))
    return [((column + 1) * length - 1) // columns for column in range(columns)]


def window(length: int, columns: int, around: int) -> range:
    """Which values a chart of `columns` columns shows: the last ones, unless the selected one is earlier."""
    first = max(0, length - columns)
    if around < first:
        first = max(0, around - columns // 2)
    return range(first, min(length, first + columns))


def _eighths(value: float | None, height: int, top: float) -> int:
    if value is None or value <= 0 or top <= 0:
        return 0
    return max(1, min(8 * height, round(value / top * 8 * height)))


def _clamp(level: int) -> int:
    return max(0, min(8, level))
