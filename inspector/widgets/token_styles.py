"""How a token looks in the running text: prompt or completion, special, unfinished, and its heat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.segment import Segment
from rich.style import Style
from textual.content import Content
from textual.style import Style as ContentStyle

from engine.protocol import PromptToken
from inspector import scales
from inspector.display import SPACE, hex_bytes, pad
from inspector.state.session_tree import Item
from inspector.widgets.canvas import rgb_style
from inspector.widgets.wrap import TextPiece

_UNDERLINED = 4
"""The heat step from which a token is underlined too: colour is never the only carrier."""
_EDGE = "│"
_REVERSED = Style(reverse=True)
_STRUCK = Style(strike=True, bold=True)
_PLAIN = (Style(), Style(italic=True), Style(underline=True), Style(underline=True, italic=True),
          Style(underline=True, bold=True), Style(underline=True, bold=True, italic=True))  # fmt: skip
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
    edges = [edge * 100 if metric.top == 1.0 else edge for edge in metric.steps]
    unit = "%" if metric.top == 1.0 else "" if short else metric.unit
    parts = (
        Content(f"{metric.name} {word}"),
        swatches(edges, dark, colourful),
        Content(f" {unit}" if unit else ""),
    )
    return Content("").join(parts)


def swatches(edges: Sequence[float], dark: bool, colourful: bool) -> Content:
    """Where each heat step begins, on its own colour."""
    return Content("").join(
        Content.styled(f" {edge:g} ", _swatch(step, dark, colourful))
        for step, edge in enumerate(edges, start=1)
    )


def _swatch(step: int, dark: bool, colourful: bool) -> ContentStyle:
    return ContentStyle.from_rich_style(heat_style(step, dark, colourful))


class TokenStyles:
    """Styles of the running text, for one metric and one theme.

    Args:
        inks: Named styles on the panel's ground: `base`, `muted`, `faint`, `special`, `cursor`, `accent`, `warn`, and
            `row` for the ground of every other token with borders.
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
        calm, hot = self._styles(piece, item, selected, ahead, other)
        core = piece.text.lstrip(" ")
        if not core or core == piece.text:
            return [Segment(piece.text, hot)]
        return [Segment(piece.text[: -len(core)], calm), Segment(core, hot)]

    def bordered(
        self, piece: TextPiece, item: Item, selected: bool, ahead: bool, other: bool = False
    ) -> list[Segment]:
        """One piece of a token as `segments` draws it, its spaces in sight, and its border where it ends here.

        Neighbours differ in their ground, too; a special token is reversed.
        """
        ground = self._ground(piece.slot)
        calm, hot = self._styles(piece, item, selected, ahead, other, ground)
        if piece.mark:
            return [Segment(piece.text, hot)]
        if item.special and not selected:
            hot += _REVERSED
        core = piece.text.lstrip(" ")
        spaces = calm if selected else calm + Style(color=self.inks["faint"].color)
        trail = SPACE * (len(core) - len(core.rstrip(" ")))
        drawn = [
            Segment(SPACE * (len(piece.text) - len(core)), spaces),
            Segment(core.rstrip(" "), hot),
            Segment(trail, spaces),
        ]
        return [*(part for part in drawn if part.text), *self._end(piece, ground)]

    def under(self, piece: TextPiece, selected: bool) -> list[Segment]:
        """What stands under one piece of a token, as wide as the piece."""
        cells, ground = piece.cells - piece.edge, self._ground(piece.slot)
        if piece.mark:
            return [Segment(" " * cells)]
        style = self.inks["accent" if selected else "muted"] + ground + link_of(piece)
        return [Segment(pad(piece.under, cells), style), *self._end(piece._replace(text=" " * cells), ground)]

    def _styles(
        self,
        piece: TextPiece,
        item: Item,
        selected: bool,
        ahead: bool,
        other: bool,
        ground: Style | None = None,
    ) -> tuple[Style, Style]:
        """The styles of a piece's leading spaces and of its text; nothing is added that changes nothing."""
        link = link_of(piece)
        if piece.mark:
            style = self.inks["accent"] + link
            return style, style
        if selected:
            style = self.inks["cursor"] + link
            style = style + _STRUCK if other else style
            return style, style
        ink = self.inks["warn"] if other else self._base(piece, item, ahead)
        calm = (ink + ground if ground else ink) + link
        hot = calm + _STRUCK if other else calm
        step = self.metric.step(self.metric.value(item))
        return calm, hot + self._heat[step] if step else hot

    def _ground(self, slot: int) -> Style:
        """Of a token with borders: every other one is shaded."""
        return Style(bgcolor=self.inks["row"].bgcolor) if slot % 2 else Style()

    def _end(self, piece: TextPiece, ground: Style) -> list[Segment]:
        """The empty cells after a piece's text, and the border."""
        blank = Segment(" " * piece.blank, self.inks["base"] + ground + link_of(piece))
        edge = Segment(_EDGE, self.inks["faint"] + link_of(piece))
        return [blank, edge] if piece.edge else [blank]

    def _base(self, piece: TextPiece, item: Item, ahead: bool) -> Style:
        if ahead:
            return self.inks["faint"]
        if item.special:
            return self.inks["special"]
        if piece.text == "↵" or (not item.text and piece.text == hex_bytes(item.raw)):
            return self.inks["faint"]
        return self.inks["muted" if isinstance(item, PromptToken) else "base"]


def link_of(piece: TextPiece) -> Style:
    """What a click on a piece knows."""
    return Style.from_meta({"slot": piece.slot})
