"""Bars, areas, curves and the ruler of a draw, drawn with characters. Charts begin at zero."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby, pairwise
from operator import attrgetter, itemgetter

from msgspec import Struct
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style

from engine.protocol import Distribution
from inspector.display import token_label
from inspector.scales import cut

EIGHTHS = " ▏▎▍▌▋▊▉█"
HEIGHTS = " ▁▂▃▄▅▆▇█"
OPENS = "┌"
"""Marks the column from which a value holds."""
LEAST_HELD = 3
"""Minimum cells of a value on average: with fewer, the marks say nothing."""
DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""Bits of a braille cell: two columns, each from the top."""
BLANK = 0x2800
AXIS = "│"
"""The zero line between bars to the left and to the right."""
_FILLS = "█▓"
_REST = "░"
_DRAWN, _POINTER = "◆", "▼"
_ENDS = 2
"""Cells of the two ends."""


# ---- block characters ---------------------------------------------------------------------------


def bar(share: float, cells: int) -> str:
    """A horizontal bar in eighths of a cell; a share above 0 shows at least one eighth.

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


def progress_bar(done: int, total: int) -> str:
    """Progress as a bar of 16 cells, with dots for the rest."""
    return bar(done / total if total else 0.0, 16).replace(" ", "·")


class Spread(Struct, frozen=True):
    """The cells of the bars left and right of their axis."""

    left: int
    right: int
    scale: float
    """Cells for 1."""


def spread(values: Sequence[float], cells: int, named: Sequence[int] = (0, 0)) -> Spread:
    """Divide cells between negative and positive values, in proportion to the extremes.

    Args:
        values: The values of the bars.
        cells: Cells of the bars, with their axis.
        named: Minimum cells of each side for its name, if both need no more than half of all.
    """
    low, high = max(0.0, -min(values, default=0.0)), max(0.0, max(values, default=0.0))
    if not low + high > 0:
        return Spread(0, cells - 1, 0.0)
    left = round((cells - 1) * low / (low + high))
    left = min(max(left, 1 if low else 0), cells - 2 if high else cells - 1)
    if 2 * sum(named) <= cells:
        left = min(max(left, named[0]), cells - 1 - named[1])
    right = cells - 1 - left
    scales = (side / most for side, most in ((left, low), (right, high)) if most and side)
    return Spread(left, right, min(scales))


def bar_texts(value: float, within: bool, to: Spread) -> tuple[str, str]:
    """The texts left and right of the axis: solid to the right, hatched to the left, thin for a part of another row.

    Args:
        value: The value of the bar.
        within: Whether it is a part of the row above, such as a head of an attention.
        to: The cells on both sides of the axis.
    """
    long = abs(value) * to.scale
    if not within and value > 0:
        return " " * to.left, bar(long / to.right if to.right else 0.0, to.right)
    halves = max(1, round(2 * long)) if value else 0
    full, half = divmod(halves, 2)
    if value > 0:
        return " " * to.left, ("━" * full + "╸" * half).ljust(to.right)[: to.right]
    text = "╺" * half + "╍" * full if within else "▒" * round(long) or ("▕" if value else "")
    return text.rjust(to.left)[-to.left :] if to.left else "", " " * to.right


def area(values: Sequence[float | None], height: int, top: float) -> list[str]:
    """A chart with one column per value, filled from zero.

    Args:
        values: Values of 0 or more; None leaves its column empty.
        height: Lines.
        top: The value that fills the whole height.

    Returns:
        The lines from the top. A value above 0 shows at least one eighth of a line.
    """
    lines = [""] * height
    for value in values:
        level = 0
        if value is not None and value > 0 and top > 0:
            level = max(1, min(8 * height, round(value / top * 8 * height)))
        for line in range(height):
            below = 8 * (height - 1 - line)
            lines[line] += HEIGHTS[max(0, min(8, level - below))]
    return lines


def held_values(values: Sequence[int], label: Callable[[int], str]) -> str:
    """A line over a chart with a mark and a label where a value begins: `┌ 2 MiB ╌╌╌╌┌ 4 MiB ╌╌`; a plain line if
    the values change too often.

    Args:
        values: One value per column.
        label: Returns the words for a value; they are left out if they don't fit before the next value.

    Returns:
        A text with a cell for each value.
    """
    line, marks = "", 0
    for value, columns in groupby(values):
        cells, words = len(list(columns)), f"{OPENS} {label(value)}"
        line += (f"{words} " if len(words) <= cells else OPENS).ljust(cells, "╌")[:cells]
        marks += 1
    return line if marks * LEAST_HELD <= len(values) + LEAST_HELD else OPENS.ljust(len(values), "╌")


def axis(first: str, last: str, cells: int, name: str = "") -> str:
    """The line under a chart: its first value, its name and its last value.

    Args:
        first: Text under the first column.
        last: Text under the last column.
        cells: Cells of the chart.
        name: Text between them, if there is room.

    Returns:
        A text of `cells` cells; empty if both ends don't fit.
    """
    room = cells - len(first) - len(last)
    if room < 1:
        return ""
    return f"{first}{name if len(name) + 2 <= room else '':^{room}}{last}"


def shares(parts: Sequence[float], cells: int) -> list[int]:
    """Divide the cells of a bar among its parts by largest remainder.

    Args:
        parts: Values of 0 or more.
        cells: Length of the bar.

    Returns:
        Cells for each part; they add up to the length, or to 0 if all parts are 0.
    """
    total = sum(parts)
    if total <= 0:
        return [0] * len(parts)
    whole, rests = [], []
    for n, part in enumerate(parts):
        exact = part / total * cells
        whole.append(int(exact))
        rests.append((int(exact) - exact, n))
    for _, n in sorted(rests)[: cells - sum(whole)]:
        whole[n] += 1
    return whole


def sample(length: int, columns: int) -> list[int]:
    """The places of the values in a chart of `columns` columns: all, or evenly spaced ones including the last."""
    if length <= columns:
        return list(range(length))
    return [((column + 1) * length - 1) // columns for column in range(columns)]


def window(length: int, columns: int, around: int) -> range:
    """The places of the values in a chart of `columns` columns: the last ones, or those around an earlier one."""
    first = max(0, length - columns)
    if around < first:
        first = max(0, around - columns // 2)
    return range(first, min(length, first + columns))


def in_sight(length: int, room: int, around: int) -> range:
    """The rows or columns in sight, `room` of `length`: those around the cursor."""
    first = max(0, min(around - room // 2, length - room))
    return range(first, min(length, first + room))


# ---- curves in braille dots ---------------------------------------------------------------------


class Cell(Struct, frozen=True):
    char: str
    series: int | None
    """Number of the curve that it belongs to, the last one of several; None for an empty cell."""


def curves(series: Sequence[Sequence[float]], width: int, height: int, top: float) -> list[list[Cell]]:
    """Draw curves over one another, from a zero line.

    Args:
        series: Curves of equal length, with values of 0 or more.
        width: Cells.
        height: Cells.
        top: The value at the upper edge.

    Returns:
        The lines from the top, each of `width` cells.
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
    """One value per column: medians of neighbours if there are more values, repeated ones if there are fewer."""
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
        # the vertical part of a step belongs to the later column
        start = row if before is None else before + (row > before) - (row < before)
        dots += [(column, dot) for dot in range(min(start, row), max(start, row) + 1)]
        before = row
    return dots


def round_top(value: float) -> float:
    """The next round number for the upper edge of a chart: one digit, 1.5 or 2.5, times a power of 10."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(
        (step * power for step in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8) if value <= step * power), 10 * power
    )


# ---- the ruler: the tokens that can be drawn, end to end, and the place of the draw -------------


_Share = tuple[str, float, float, bool]
"""A token's part of the bar: its label, where it starts and ends, and whether it was picked."""


def places(distribution: Distribution) -> tuple[str, str, str]:
    """The draw, and start and end of the share that it fell on, with enough decimals (3 to 9) to tell them apart."""
    draw, start, end = distribution.draw or 0.0, distribution.draw_from or 0.0, distribution.draw_to or 0.0
    digits = next((each for each in range(3, 9) if cut(start, each) != cut(end, each)), 9)
    return cut(draw, digits), cut(start, digits), cut(end, digits)


def ruler(distribution: Distribution, width: int, inks: Mapping[str, Style]) -> list[list[Segment]]:
    """The rows of pointer, bar and names; empty if there was no draw, or no room.

    Args:
        distribution: The distribution that was drawn from.
        width: Cells available.
        inks: Named styles: `muted`, `accent`, `strong`, `faint`, `data`, `other`.
    """
    cells = width - _ENDS
    if distribution.draw is None or cells < 8:
        return []
    at = min(cells - 1, int(distribution.draw * cells))
    again = f", drawn again {distribution.reroll}×" if distribution.reroll else ""
    words = f"draw {places(distribution)[0]}{again}"
    if at > len(words):
        before, pointer = at - len(words), f"{words} {_POINTER}"
    else:
        before, pointer = at + 1, f"{_POINTER} {words}"[: cells - at]
    # the tokens that can be drawn, the largest share first; the picked one's as the engine reports it
    parts: list[_Share] = []
    start = 0.0
    for each in sorted(distribution.candidates, key=attrgetter("sampler_prob"), reverse=True):
        if each.sampler_prob <= 0:
            break
        label, end, picked = (
            token_label(each.text, each.raw),
            start + each.sampler_prob,
            each.id == distribution.picked,
        )
        place = (distribution.draw_from or 0.0, distribution.draw_to or 0.0) if picked else (start, end)
        parts.append((label, *place, picked))
        start = end
    return [
        [Segment(" " * before), Segment(pointer, inks["accent"])],
        _bar(parts, at, cells, inks),
        _names(parts, cells, inks),
    ]


def _bar(parts: Sequence[_Share], at: int, cells: int, inks: Mapping[str, Style]) -> list[Segment]:
    """The bar with the draw: each cell shows the share at its middle, or the rest, which are no candidates."""
    row, index = [Segment("▕", inks["faint"])], 0
    for cell in range(cells):
        middle = (cell + 0.5) / cells
        while index < len(parts) and parts[index][2] <= middle:
            index += 1
        if cell == at:
            row.append(Segment(_DRAWN, inks["accent"]))
        elif index == len(parts) or parts[index][1] > middle:
            row.append(Segment(_REST, inks["faint"]))
        elif parts[index][3]:
            row.append(Segment("━", inks["accent"]))
        else:
            row.append(Segment(_FILLS[index % 2], inks["data" if index % 2 == 0 else "other"]))
    return [*row, Segment("▏", inks["faint"])]


def _names(parts: Sequence[_Share], cells: int, inks: Mapping[str, Style]) -> list[Segment]:
    """The picked token's name, and those of other shares that are wide enough and have room beside it."""
    names: list[tuple[int, str, bool]] = []
    low, high = 0, -1
    for label, begin, end, picked in sorted(parts, key=itemgetter(3), reverse=True):
        start, size = int(begin * cells), cell_len(label)
        if picked:
            start = min(start, max(0, cells - size))
            low, high = start, start + size
        elif size >= int(end * cells) - start or (low <= start + size and start <= high):
            continue
        names.append((start, label, picked))
    row, at = [Segment(" ")], 0
    for start, label, picked in sorted(names, key=itemgetter(0)):
        row += [Segment(" " * (start - at)), Segment(label, inks["accent" if picked else "muted"])]
        at = start + cell_len(label)
    return row
