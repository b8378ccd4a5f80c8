"""The named inks that panels draw with, in the theme's own colours and on a panel's own ground.

They are not component classes of the widgets: Textual holds the whole style sheet against each of those, twelve times a
widget, at every start and change of a class. That was most of the styling's time.
"""

from __future__ import annotations

from typing import NamedTuple

from rich.style import Style
from textual.color import Color
from textual.widget import Widget


class _Ink(NamedTuple):
    """A colour of the theme each, and how much of it; no colour is the panel's own."""

    colour: str = ""
    ground: str = ""
    style: Style = Style()
    share: float = 1.0
    ground_share: float = 1.0


_INKS = {
    "base": _Ink(),
    "muted": _Ink("text-muted"),
    "faint": _Ink("text-disabled"),
    "strong": _Ink(style=Style(bold=True)),
    "primary": _Ink("text-primary"),
    "accent": _Ink("text-accent", style=Style(bold=True)),
    "good": _Ink("text-success"),
    "warn": _Ink("text-warning"),
    "bad": _Ink("text-error"),
    "special": _Ink("text-secondary", style=Style(italic=True)),
    "cursor": _Ink("text-accent", "background", Style(bold=True, reverse=True)),
    "row": _Ink(ground="foreground", style=Style(bold=True), ground_share=0.1),
    "caret": _Ink("input-cursor-foreground", "input-cursor-background"),
    "selection": _Ink("input-selection-foreground", "input-selection-background"),
    "marked": _Ink("text", "primary", ground_share=0.4),
    "track": _Ink("foreground", "foreground", share=0.2, ground_share=0.1),
}


def panel_css(kind: str) -> str:
    """The frame of a panel, in the theme's own colours.

    Args:
        kind: Class name of the widget.
    """
    return f"""
    {kind} {{
        border: round $foreground 22%; border-title-color: $text; border-title-style: bold;
        border-subtitle-color: $text-muted; padding: 0 1; background: $background; color: $text;
        scrollbar-size-vertical: 1; scrollbar-background: $background; scrollbar-color: $foreground 18%;
        scrollbar-background-hover: $background; scrollbar-background-active: $background;
    }}
    {kind}:focus, {kind}:focus-within {{ border: round $primary; }}
    """


class Inked(Widget):
    """A widget that draws with the named inks.

    Among several bases it comes last: Textual takes the style sheet of the first one alone.
    """

    _mixed_inks: dict[str, Style] | None = None

    def ink(self, name: str) -> Style:
        """One of the named inks, on the widget's ground."""
        if self._mixed_inks is None:
            self._mixed_inks = {}
        if name not in self._mixed_inks:
            self._mixed_inks[name] = _mixed(self, _INKS[name])
        return self._mixed_inks[name]

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._mixed_inks = None


def _mixed(widget: Widget, ink: _Ink) -> Style:
    """An ink's style: its ground laid on the widget's, and its colour on both."""
    ground = widget.background_colors[1]
    style = widget.rich_style + ink.style
    if ink.ground:
        ground += _theme_colour(widget, ink.ground, ink.ground_share, ground)
        style += Style(bgcolor=ground.rich_color)
    if ink.colour:
        colour = _theme_colour(widget, ink.colour, ink.share, ground)
        style += Style(color=(ground + colour).rich_color)
    return style


def _theme_colour(widget: Widget, name: str, share: float, ground: Color) -> Color:
    """A colour of the theme as a style sheet writes one: `#e0e0e0`, `ansi_blue 50%`, or `auto 60%`, what reads best."""
    colour, _, percent = widget.app.theme_variables[name].partition(" ")
    share *= float(percent.removesuffix("%") or 100) / 100
    return ground.get_contrast_text(share) if colour == "auto" else Color.parse(colour).multiply_alpha(share)
