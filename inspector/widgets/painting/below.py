"""The screen below a dialog, dimmed: what is drawn of it is kept line by line."""

from __future__ import annotations

from collections.abc import Iterable

from rich.color import Color as RichColor
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.css.styles import RulesMap
from textual.geometry import Region
from textual.screen import Screen
from textual.strip import Strip
from textual.style import Style as VisualStyle
from textual.visual import RenderOptions, Visual


class Below(Visual):
    """Draws what the toolkit's `BackgroundScreen` draws. That one draws the whole screen whenever a line of it changes.

    Args:
        screen: The screen below.
        colour: What it is dimmed with.
    """

    def __init__(self, screen: Screen[object], colour: Color) -> None:
        self.screen, self.colour = screen, colour
        self._lines: list[Strip | None] = []
        self._drawn_with = (0, Style.null())
        self._dimmed: dict[Style, Style] = {}

    def forget(self, regions: Iterable[Region]) -> None:
        """Draw the lines of some regions anew, next time."""
        for region in regions:
            for y in region.line_range:
                if 0 <= y < len(self._lines):
                    self._lines[y] = None

    def get_optimal_width(self, rules: RulesMap, container_width: int) -> int:
        """The screen's."""
        return container_width

    def get_height(self, rules: RulesMap, width: int) -> int:
        """The screen's."""
        return self.screen.size.height

    def render_strips(
        self, width: int, height: int | None, style: VisualStyle, options: RenderOptions
    ) -> list[Strip]:
        """Draw the lines that were forgotten, and return all."""
        height = self.screen.size.height if height is None else height
        if self._drawn_with != (width, style.rich_style) or len(self._lines) != height:
            self._drawn_with, self._lines, self._dimmed = (width, style.rich_style), [None] * height, {}
        wanted = [y for y, line in enumerate(self._lines) if line is None]
        if wanted:
            crop = Region(0, wanted[0], width, wanted[-1] + 1 - wanted[0])
            drawn = self.screen._compositor._render_chops(crop, set(wanted).__contains__)
            for y in wanted:
                parts = drawn[y].values() if y < len(drawn) else ()
                self._lines[y] = self._dim(Strip.join(parts).crop(0, width))
        return [line for line in self._lines if line is not None]

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
