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
    """Shares in at most `count` stretches of equal length: the largest of each, since peaks are looked for.

    If there is room for several cells a token, each token has as many.
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
    """Draws shares in some styles."""

    def __init__(self, on: Inks) -> None:
        self._base, self._muted = on.rich_style, on.ink("muted")
        self.colorful, self.dark = on.colorful, on.dark
        self._colors = [on.ink("track").bgcolor]
        """The color of each step."""
        for step in range(1, len(scales.SHARES) + 1) if on.colorful else ():
            self._colors.append(rgb_style(ground=scales.HEAT[step, on.dark][1]).bgcolor)

    def strip(self, shares: Sequence[float], cells: int) -> Row:
        """A strip of some cells, blank after the last share; shares that have no cell of their own share one."""
        shares = stretches(shares, 2 * cells if self.colorful else cells)
        if not self.colorful:
            return [Segment("".join(GLYPHS[step_of(share)] for share in shares).ljust(cells), self._base)]
        row: Row = []
        steps: list[int | None] = [*map(step_of, shares), *[None] * (2 * cells)]
        for left, right in zip(steps[0 : 2 * cells : 2], steps[1 : 2 * cells : 2], strict=True):
            if left is None:
                row.append(Segment(" "))
            elif right is None:
                row.append(Segment("▌", Style(color=self._colors[left])))
            else:
                row.append(self._pair("▌", left, right))
        return row

    def whole(self, share: float | None, cells: int) -> Segment:
        """Some cells of one share; None for a hidden one."""
        if share is None:
            return Segment(" " * cells)
        if not self.colorful:
            return Segment(GLYPHS[step_of(share)] * cells, self._base)
        return Segment(" " * cells, Style(bgcolor=self._colors[step_of(share)]))

    def halves(self, upper: float | None, lower: float | None) -> Segment:
        """One cell with a share above and one below; None for a hidden one. It needs colors."""
        if upper is None or lower is None:
            seen = upper if lower is None else lower
            if seen is None:
                return Segment(" ")
            return Segment("▀" if lower is None else "▄", Style(color=self._colors[step_of(seen)]))
        return self._pair("▀", step_of(upper), step_of(lower))

    def _pair(self, glyph: str, first: int, second: int) -> Segment:
        return Segment(glyph, Style(color=self._colors[first], bgcolor=self._colors[second]))

    def legend(self, width: int) -> Row:
        """The meaning of the colors, in so many cells."""
        row: Row = [
            Segment("  ", Style(bgcolor=self._colors[0])) if self.colorful else Segment(GLYPHS[0], self._base)
        ]
        for step, edge in enumerate(scales.SHARES, start=1):
            if self.colorful:
                row.append(Segment(f" {edge * 100:g} ", heat_style(step, self.dark, True)))
            else:
                row.append(Segment(f" {GLYPHS[step]} {edge * 100:g}", self._base))
        cells = Segment.get_line_length(row)
        words = next(each for each in LEGENDS if len(each) + cells <= width or not each)
        return [Segment(words, self._muted), *row]
