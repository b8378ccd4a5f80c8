"""Weights as colours in the steps of the text's heat, or as glyphs where the terminal has no colours for a scale."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style

from inspector import scales
from inspector.main.inside.token_heat import STEPS
from inspector.widgets.canvas import Canvas, Row, colourful, is_dark, rgb_style
from inspector.widgets.token_styles import heat_style

GLYPHS = "·:░▒▓█"
"""For each step, from calm to hottest."""


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

    def strip(self, shares: Sequence[float]) -> Row:
        """A strip; with colours two shares a cell, without one.

        Args:
            shares: With colours an even number.
        """
        if not self.colourful:
            return [Segment("".join(GLYPHS[step_of(share)] for share in shares), self._on.rich_style)]
        pairs = zip(shares[::2], shares[1::2], strict=True)
        return [self._pair("▌", step_of(left), step_of(right)) for left, right in pairs]

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

    def legend(self) -> Row:
        """What the steps mean."""
        row: Row = [Segment("% of its attention ", self._on.ink("muted")), self.whole(0.0, 2)]
        for step, edge in enumerate(STEPS, start=1):
            glyph = "" if self.colourful else GLYPHS[step]
            style = heat_style(step, self.dark, True) if self.colourful else self._on.rich_style
            row.append(
                Segment(f" {glyph}{edge * 100:g} " if self.colourful else f" {glyph} {edge * 100:g}", style)
            )
        return row


def step_of(share: float) -> int:
    """The step of the text's heat that a share has."""
    return sum(share >= edge for edge in STEPS)
