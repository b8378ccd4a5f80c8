"""Shares as colors of a scale, or as glyphs without colors: strips, cells and their legend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rich.segment import Segment
from rich.style import Style

from inspector import scales
from inspector.scales import step_of
from inspector.widgets.rows import Row, heat_style, rgb_style

GLYPHS = "·:░▒▓█"
"""A glyph for each step, from calm to hottest."""
LEGENDS = ("% of a head's attention, from ", "% of attention ", "% ", "")
"""The words before the legend: the longest that fits."""


class Inks(Protocol):
    """Named styles; see `inspector.widgets.inks`."""

    @property
    def rich_style(self) -> Style:
        """The style of plain text."""

    @property
    def colorful(self) -> bool:
        """True if there are enough colors for a scale."""

    @property
    def dark(self) -> bool:
        """True if the background is dark."""

    def ink(self, name: str) -> Style:
        """A style by its name."""

    def data(self, level: float = 0.5) -> Style:
        """The color of a bar."""


def stretches(shares: Sequence[float], count: int) -> list[float]:
    """Shares in at most `count` stretches of equal length: the largest share of each, since peaks matter.

    If there is room for several cells per token, all tokens have the same number of cells.
    """
    tokens, found = len(shares), list[float]()
    if 0 < tokens <= count:
        for share in shares:
            found += [share] * (count // tokens)
        return found
    for place in range(count):
        first, end = place * tokens // count, (place + 1) * tokens // count
        found.append(max(shares[first:end], default=0.0))
    return found


class Shades:
    """Draws shares in the styles of a widget, or without colors."""

    def __init__(self, on: Inks) -> None:
        self._base, self._muted = on.rich_style, on.ink("muted")
        self.colorful, self.dark = on.colorful, on.dark
        grounds = (scales.HEAT[step, on.dark][1] for step in range(1, scales.STEPS + 1))
        self._colors = [on.ink("track").bgcolor, *(rgb_style(ground=ground).bgcolor for ground in grounds)]
        """The color of each step."""

    def strip(self, shares: Sequence[float], cells: int) -> Row:
        """A strip of `cells` cells, blank after the last share; if there are too few, several shares have one cell."""
        shares = stretches(shares, 2 * cells if self.colorful else cells)
        if not self.colorful:
            return [Segment("".join(GLYPHS[step_of(share)] for share in shares).ljust(cells), self._base)]
        row = [self._pair("▌", *shares[at : at + 2]) for at in range(0, len(shares), 2)]
        return [*row, *[Segment(" ")] * (cells - len(row))]

    def whole(self, share: float | None, cells: int) -> Segment:
        """Some cells of one share; None for a hidden one."""
        if share is None:
            return Segment(" " * cells)
        if not self.colorful:
            return Segment(GLYPHS[step_of(share)] * cells, self._base)
        return Segment(" " * cells, Style(bgcolor=self._colors[step_of(share)]))

    def halves(self, upper: float | None, lower: float | None) -> Segment:
        """One cell with a share above and one below; None for a hidden one. It needs colors."""
        if upper is None:
            return Segment(" ") if lower is None else self._pair("▄", lower)
        return self._pair("▀", upper, lower)

    def _pair(self, glyph: str, share: float, other: float | None = None) -> Segment:
        ground = None if other is None else self._colors[step_of(other)]
        return Segment(glyph, Style(color=self._colors[step_of(share)], bgcolor=ground))

    def legend(self, width: int) -> Row:
        """The meaning of the colors, with the longest words that fit into `width` cells."""
        row: Row = [self.whole(0.0, 2 if self.colorful else 1)]
        for step, edge in enumerate(scales.SHARES, start=1):
            if self.colorful:
                row.append(Segment(f" {edge * 100:g} ", heat_style(step, self.dark, True)))
            else:
                row.append(Segment(f" {GLYPHS[step]} {edge * 100:g}", self._base))
        cells = Segment.get_line_length(row)
        words = next(each for each in LEGENDS if len(each) + cells <= width or not each)
        return [Segment(words, self._muted), *row]
