"""Weights as colours in the steps of the text's heat, or as glyphs where the terminal has no colours for a scale."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style

from inspector import scales
from inspector.main.inside.screen import STEPS
from inspector.widgets.canvas import Canvas, Row, colourful, is_dark, rgb_style
from inspector.widgets.token_styles import heat_style

GLYPHS = "·:░▒▓█"
"""For each step, from calm to hottest."""

WORDS = ("% of a head's attention, from ", "% of attention ", "% ")
"""Before the legend: the longest that there is room for."""


class Shades:
    """What cells are drawn with.

    Args:
        on: Its theme and terminal.
    """

    def __init__(self, on: Canvas) -> None:
        self._on = on
        self.colourful, self.dark = colourful(on.app), is_dark(on.app)
        calm = on.ink("track").bgcolor
        grounds = [
            rgb_style(ground=scales.heat(step, self.dark)[1]).bgcolor for step in range(1, len(STEPS) + 1)
        ]
        self._colours = [calm, *grounds]

    def strip(self, shares: Sequence[float], cells: int) -> Row:
        """A strip of some cells, blank where the shares end.

        Args:
            shares: At most `fit(cells)`.
            cells: Its width.
        """
        if not self.colourful:
            return [
                Segment("".join(GLYPHS[step_of(share)] for share in shares).ljust(cells), self._on.rich_style)
            ]
        row: Row = []
        for place in range(0, 2 * cells, 2):
            left, right = (step_of(shares[at]) if at < len(shares) else None for at in (place, place + 1))
            if left is None:
                row.append(Segment(" "))
            elif right is None:
                row.append(Segment("▌", Style(color=self._colours[left])))
            else:
                row.append(self._pair("▌", left, right))
        return row

    def fit(self, cells: int) -> int:
        """Shares that fit in a strip: with colours two a cell, without one."""
        return 2 * cells if self.colourful else cells

    def whole(self, share: float | None, cells: int) -> Segment:
        """Some cells of one share; None for what can't be seen."""
        if share is None:
            return Segment(" " * cells)
        if not self.colourful:
            return Segment(GLYPHS[step_of(share)] * cells, self._on.rich_style)
        return Segment(" " * cells, Style(bgcolor=self._colours[step_of(share)]))

    def halves(self, upper: float | None, lower: float | None) -> Segment:
        """One cell with a share above and one below; None for what can't be seen. For colours alone."""
        if upper is None or lower is None:
            seen = upper if lower is None else lower
            if seen is None:
                return Segment(" ")
            return Segment("▀" if lower is None else "▄", Style(color=self._colours[step_of(seen)]))
        return self._pair("▀", step_of(upper), step_of(lower))

    def _pair(self, glyph: str, first: int, second: int) -> Segment:
        return Segment(glyph, Style(color=self._colours[first], bgcolor=self._colours[second]))

    def legend(self, width: int) -> Row:
        """What the steps mean.

        Args:
            width: Cells that there are for it.
        """
        plain, muted = self._on.rich_style, self._on.ink("muted")
        row: Row = [self.whole(0.0, 2 if self.colourful else 1)]
        for step, edge in enumerate(STEPS, start=1):
            number = f"{edge * 100:g}"
            if self.colourful:
                row.append(Segment(f" {number} ", heat_style(step, self.dark, True)))
            else:
                row.append(Segment(f" {GLYPHS[step]} {number}", plain))
        cells = sum(part.cell_length for part in row)
        words = next((word for word in WORDS if len(word) + cells <= width), "")
        return [Segment(words, muted), *row]


def step_of(share: float) -> int:
    """The step of the text's heat that a share has."""
    return sum(share >= edge for edge in STEPS)
