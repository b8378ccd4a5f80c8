"""How a token looks in the running text: prompt or completion, special, unfinished, and its heat."""

from __future__ import annotations

from collections.abc import Mapping

from rich.segment import Segment
from rich.style import Style
from textual.content import Content
from textual.style import Style as ContentStyle

from engine.records import PromptToken
from inspector import scales
from inspector.display import hex_bytes
from inspector.state.timeline import Item
from inspector.widgets.canvas import rgb_style
from inspector.widgets.wrap import TextPiece

_UNDERLINED = 4
"""The heat step from which a token is underlined too: colour is never the only carrier."""
_STRUCK = Style(strike=True, bold=True)
_PLAIN = (Style(), Style(), Style(underline=True), Style(underline=True), Style(underline=True, bold=True),
          Style(underline=True, bold=True))  # fmt: skip
"""Heat where the terminal has no colours for it."""


def heat_style(step: int, dark: bool, colourful: bool) -> Style:
    """The style of a heat step, 0 (none) to 5."""
    if not colourful or step == 0:
        return _PLAIN[step]
    ink, ground = scales.heat(step, dark)
    return rgb_style(ink, ground) + Style(underline=step >= _UNDERLINED or None)


def legend(metric: scales.Metric, dark: bool, colourful: bool, short: bool = False) -> Content:
    """What the heat steps mean, each threshold on its own colour; a short one leaves out what can be guessed."""
    if not metric.steps:
        return Content("m heat")
    word = "" if short else "below " if metric.falling else "from "
    parts: list[Content] = [Content(f"{metric.name} {word}")]
    for step, edge in enumerate(metric.steps, start=1):
        number = f"{edge * 100:g}" if metric.top == 1.0 else f"{edge:g}"
        parts.append(Content.styled(f" {number} ", _swatch(step, dark, colourful)))
    unit = "%" if metric.top == 1.0 else "" if short else metric.unit
    return Content("").join([*parts, Content(f" {unit}" if unit else "")])


def _swatch(step: int, dark: bool, colourful: bool) -> ContentStyle:
    return ContentStyle.from_rich_style(heat_style(step, dark, colourful))


class TokenStyles:
    """Styles of the running text, for one metric and one theme.

    Args:
        inks: Named styles on the panel's ground: `base`, `muted`, `faint`, `special`, `cursor`, `accent`, `warn`.
        metric: The heat.
        dark: Whether the theme is dark.
        colourful: Whether the terminal has colours for a scale.
    """

    def __init__(self, inks: Mapping[str, Style], metric: scales.Metric, dark: bool, colourful: bool) -> None:
        self.inks, self.metric = inks, metric
        self._heat = [heat_style(step, dark, colourful) for step in range(scales.STEPS + 1)]

    def segments(
        self, piece: TextPiece, item: Item, selected: bool, ahead: bool, other: bool = False
    ) -> list[Segment]:
        """One piece of a token.

        Args:
            piece: The part of it in this line.
            item: Its token.
            selected: Whether the cursor is on it.
            ahead: Whether it is prompt that hasn't gone through the model yet.
            other: Whether the settings that are tried would have picked another token: it is struck through.
        """
        link = Style.from_meta({"slot": piece.slot})
        if piece.mark:
            return [Segment(piece.text, self.inks["accent"] + link)]
        struck = _STRUCK if other else Style()
        if selected:
            return [Segment(piece.text, self.inks["cursor"] + link + struck)]
        style = (self.inks["warn"] if other else self._base(piece, item, ahead)) + link
        hot = style + struck + self._heat[self.metric.step(self.metric.value(item))]
        core = piece.text.lstrip(" ")
        if not core or core == piece.text:
            return [Segment(piece.text, hot)]
        return [Segment(piece.text[: -len(core)], style), Segment(core, hot)]

    def _base(self, piece: TextPiece, item: Item, ahead: bool) -> Style:
        if ahead:
            return self.inks["faint"]
        if item.special:
            return self.inks["special"]
        if piece.text == "↵" or (not item.text and piece.text == hex_bytes(item.raw)):
            return self.inks["faint"]
        return self.inks["muted" if isinstance(item, PromptToken) else "base"]
