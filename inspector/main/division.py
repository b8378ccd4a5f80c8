"""The division of the panels' room: the grid's rows and columns, and the places of the dividers. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from textual.geometry import Region

LEAST_LINES = 4
"""Of a panel whose divider is moved, its frame included."""
WHOLE, HALF = 1000, 500
"""The width, and the left column's share of it as long as no divider was moved."""
LEAST_SHARE, MOST_SHARE = 200, 800
"""The least and the largest share of the left column."""
NEARLY_LINES, NEARLY_PART = 2, 10
"""Fewer lines than this, or a smaller part of the width than one in so many, are nearly none: the panel is hidden."""
STRETCH = "1fr"

Spans = Mapping[str, tuple[int, int]]
"""Rows and columns that each panel covers."""


class Division(Struct, frozen=True):
    """A grid of two columns, as the toolkit wants it."""

    columns: str
    rows: str
    spans: Spans


def divided(
    left: Sequence[str], right: Sequence[str], below: int, share: int = HALF, last: int | None = None
) -> Division:
    """Two columns of panels side by side.

    Args:
        left: Ids of the panels on the left: the text, and perhaps one under it.
        right: Those on the right: one to three; none gives its room to the left.
        below: Lines of those under the first ones.
        share: Thousandths of the width for the left column.
        last: Lines of the lowest of three on the right; None for half of those below.
    """
    over = {1: (3,), 2: (1, 2), 3: (1, 1, 1)}
    spans = {
        id: (rows, 1)
        for side in (left, right)
        for id, rows in zip(side, over.get(len(side), ()), strict=True)
    }
    if not right:
        spans = {id: (rows, 2) for id, (rows, _) in spans.items()}
    least = min(LEAST_LINES, below // 2)
    lowest = below // 2 if last is None else max(least, min(last, below - least))
    return Division(_columns(share), f"{STRETCH} {below - lowest} {lowest}", spans)


def lined(left: Sequence[str], answer: str, lines: Sequence[str], below: int, share: int = HALF) -> Division:
    """The same with lines on the right, under the answer.

    Args:
        left: Ids of the panels on the left: the text, and perhaps one under it.
        answer: The panel on the right.
        lines: Those of one line each under it.
        below: Lines of the one under the text.
        share: Thousandths of the width for the left column.
    """
    rows = 2 + len(lines)
    above = 1 if len(left) > 1 else rows
    spans = {left[0]: (above, 1), **dict.fromkeys(left[1:], (rows - above, 1))}
    right = {answer: (2, 1), **dict.fromkeys(lines, (1, 1))}
    heights = (STRETCH, str(max(1, below - len(lines))), *["1"] * len(lines))
    return Division(_columns(share), " ".join(heights), {**spans, **right})


def _columns(share: int) -> str:
    share = max(LEAST_SHARE, min(MOST_SHARE, share))
    return f"{share}fr {WHOLE - share}fr"


# ---- dividers ---------------------------------------------------------------------------------


def divider_at(x: int, y: int, regions: Mapping[str, Region], area: Region, stacked: bool) -> str:
    """The divider under a cell, empty for none: the two lines of frames that meet there.

    Args:
        x: Column of the screen.
        y: Row of the screen.
        regions: Of the panels that are shown, by their ids.
        area: Of all panels.
        stacked: Whether they are all as wide as the screen.

    Returns:
        A name of `config.preferences.SIZES`.
    """
    rights = {r.right for r in regions.values() if r.y <= y < r.bottom} - {area.right}
    if any(x in (edge - 1, edge) for edge in rights):
        return "left"
    column = [r for r in regions.values() if r.x <= x < r.right]
    # while a new size is laid out, panels have places of before: what no panel is under is no divider
    bottoms = sorted({r.bottom for r in column} & {r.y for r in column} - {area.bottom})
    if y not in {row for bottom in bottoms for row in (bottom - 1, bottom)}:
        return ""
    upper, lower = ("candidates", "lower") if stacked else ("below", "last")
    return upper if y in (bottoms[0] - 1, bottoms[0]) else lower


def moved(divider: str, x: int, y: int, sizes: Mapping[str, int], area: Region) -> dict[str, int]:
    """The sizes once a divider is where the mouse is.

    Args:
        divider: Its name.
        x: Column of the screen.
        y: Row of the screen: the first one below the divider.
        sizes: Present ones, all of those that are on screen.
        area: Of all panels.
    """
    sizes, lower = dict(sizes), sizes.get("lower", 0)
    most = area.height - LEAST_LINES
    if divider == "left":
        share = -(
            -WHOLE * (x - area.x) // max(1, area.width)
        )  # up, so that the toolkit cuts it to that many cells
        sizes["left"] = max(LEAST_SHARE, min(MOST_SHARE, share))
    elif divider == "below":
        sizes["below"] = max(2 * LEAST_LINES, min(most, area.bottom - y))
    elif divider == "last":
        sizes["last"] = max(LEAST_LINES, min(sizes["below"] - LEAST_LINES, area.bottom - y))
    elif divider == "candidates":
        sizes["candidates"] = max(LEAST_LINES, min(most - lower, area.bottom - lower - y))
    elif divider == "lower":
        both = lower + sizes.get("candidates", 0)
        sizes["lower"] = max(LEAST_LINES, min(both - LEAST_LINES, area.bottom - y))
        sizes["candidates"] = both - sizes["lower"]
    return sizes


class Grip(Struct, frozen=True):
    """A divider under the pressed button, and how the panels were when it was taken hold of."""

    divider: str
    x: int
    y: int
    """The cell of the screen."""
    regions: Mapping[str, Region]
    """Of the panels that were shown, by their ids."""
    area: Region

    def squeezed(self, x: int, y: int) -> frozenset[str]:
        """The panels that would have nearly no room, were the divider where the mouse is.

        Args:
            x: Column of the screen.
            y: Row of the screen.
        """
        if self.divider == "left":
            return self._sideways(x)
        column = {id: region for id, region in self.regions.items() if region.x <= self.x < region.right}
        above = {id: region for id, region in column.items() if self.y in (region.bottom - 1, region.bottom)}
        edge = min(region.bottom for region in above.values())
        under = [id for id, region in column.items() if region.y >= edge]
        end = self.area.bottom
        if self.divider == "candidates":  # the panel under those stays as it is
            end = min(column[id].bottom for id in under)
            under = [id for id in under if column[id].bottom == end]
        if end - y < NEARLY_LINES:
            return frozenset(under)
        return frozenset(id for id, region in above.items() if y - region.y < NEARLY_LINES)

    def _sideways(self, x: int) -> frozenset[str]:
        area = self.area
        edge = max(region.right for region in self.regions.values() if region.right <= self.x + 1)
        nearly = max(2, area.width // NEARLY_PART)
        if area.right - x < nearly:
            return frozenset(id for id, region in self.regions.items() if region.x >= edge)
        if x - area.x < nearly:
            return frozenset(id for id, region in self.regions.items() if region.right <= edge)
        return frozenset()
