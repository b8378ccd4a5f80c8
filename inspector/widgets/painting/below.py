"""The screen below a dialog, dimmed: each of its styles once."""

from __future__ import annotations

from rich.color import Color as RichColor
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.css.styles import RulesMap
from textual.screen import Screen
from textual.strip import Strip
from textual.style import Style as VisualStyle
from textual.visual import RenderOptions, Visual


class Below(Visual):
    """Draws what the toolkit's `BackgroundScreen` draws. That one dims the style of each piece anew.

    Args:
        screen: The screen below.
        colour: What it is dimmed with.
    """

    def __init__(self, screen: Screen[object], colour: Color) -> None:
        self.screen, self.colour = screen, colour
        self._drawn_with = (0, Style.null())
        self._dimmed: dict[Style, Style] = {}

    def get_optimal_width(self, rules: RulesMap, container_width: int) -> int:
        """The screen's."""
        return container_width

    def get_height(self, rules: RulesMap, width: int) -> int:
        """The screen's."""
        return self.screen.size.height

    def render_strips(
        self, width: int, height: int | None, style: VisualStyle, options: RenderOptions
    ) -> list[Strip]:
        """Draw all lines: the regions that the toolkit calls changed are too few to keep the others."""
        if self._drawn_with != (width, style.rich_style):
            self._drawn_with, self._dimmed = (width, style.rich_style), {}
        lines = self.screen._compositor.render_strips()[:height]
        return [self._dim(line.crop(0, width)) for line in lines]

    def _dim(self, line: Strip) -> Strip:
        return Strip([Segment(text, self._style(style)) for text, style, _ in line], line.cell_length)

    def _style(self, style: Style | None) -> Style:
        plain = Style.null() if style is None else style.clear_meta_and_links()
        if plain not in self._dimmed:
            tinted = Style.from_color(self._tinted(plain.color), self._tinted(plain.bgcolor))
            self._dimmed[plain] = self._drawn_with[1] + (plain + tinted)
        return self._dimmed[plain]

    def _tinted(self, colour: RichColor | None) -> RichColor | None:
        if colour is None or self.colour.a == 0:
            return colour
        return (Color.from_rich_color(colour) + self.colour).rich_color
