"""The named inks (styles) that panels draw with, in the theme's colours and on a panel's ground (background).

They are not component classes of the widgets: Textual matches the whole style sheet against each of those, twelve times
per widget, at the start and at every change of a class, which took most of the time for styling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from rich.style import Style
from textual.color import Color
from textual.widget import Widget

from inspector import scales

LEAST = 4.5
"""Minimum contrast of text of any size: WCAG 2.2, 1.4.3 (AA)."""
INK_FAINT, INK_MUTED = "ink-faint", "ink-muted"
"""The two greys as plain colours for `Content`, which reads `auto 60%` as pure black or white."""
FIELD, ROW = 0.08, 0.1
"""Share of the foreground in the ground of a field, and of a selected row."""
_TEXT = 0.87
"""Share of black or white in Textual's plain text."""
_GROUNDS = ("background", "surface", "panel")
_COLOURS = (
    "text-primary", "text-secondary", "text-accent", "text-warning", "text-error", "text-success",
    "footer-key-foreground",
)  # fmt: skip
"""The variables of coloured text; other colours are of frames, bars or grounds."""
_FAINT, _MUTED, _APART = "text-disabled", "text-muted", 0.1
"""The variables of the two greys, and the minimum difference of their shares. A selected row has no faint text."""


class _Ink(NamedTuple):
    """Text and ground colours of the theme, and their opacities; an empty name stands for the panel's own colour."""

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


# ---- a readable theme ---------------------------------------------------------------------------


def readable(variables: Mapping[str, str]) -> dict[str, str]:
    """All variables of a theme, with more contrast in text colours that were too close to a ground.

    Args:
        variables: Textual's variables of a theme. The terminal's own colours are not known, and stay.
    """
    given = {name: Color.parse(variables[name]) for name in ("foreground", *_GROUNDS)}
    if any(colour.ansi is not None for colour in given.values()):
        return {**variables, INK_FAINT: variables[_FAINT], INK_MUTED: variables[_MUTED]}
    field, row = (given["foreground"].with_alpha(share) for share in (FIELD, ROW))
    grounds = [*(given[name] for name in _GROUNDS), given["surface"] + field]
    rows = [given[name] + row for name in ("background", "surface")]
    goal = grounds[0].get_contrast_text(1.0)

    def stands_out(colour: Color) -> bool:
        return all(contrast(colour, ground) >= LEAST for ground in (*grounds, *rows))

    made = {name: _away(Color.parse(variables[name]), goal, stands_out).hex for name in _COLOURS}
    faint = max(_share(variables[_FAINT]), _least_share((ground, ground) for ground in grounds))
    in_row = _least_share((given[name], given[name] + row) for name in ("background", "surface"))
    muted = max(_share(variables[_MUTED]), faint + _APART, in_row)
    made |= {_FAINT: f"auto {faint:.0%}", _MUTED: f"auto {muted:.0%}", **_block_cursor(variables)}
    nearest = min(grounds, key=lambda ground: contrast(ground, ground.get_contrast_text(1.0)))
    for name, share in ((INK_FAINT, faint), (INK_MUTED, muted)):
        made[name] = (nearest + nearest.get_contrast_text(share)).hex
    return {**variables, **made}


def contrast(one: Color, other: Color) -> float:
    """Contrast of two opaque colours as WCAG defines it: from 1 for equal colours to 21."""
    return scales.contrast(one.rgb, other.rgb)


def _away(colour: Color, goal: Color, can_be_read: Callable[[Color], bool]) -> Color:
    """A colour moved towards the goal, black or white, until it can be read; the goal if none can."""
    moved = (colour.blend(goal, step / 20, 1.0) for step in range(21))
    return next(filter(can_be_read, moved), goal)


def _block_cursor(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables for ground and text of the highlighted row of a list, and of the button that applies."""
    ground = Color.parse(variables["block-cursor-background"])
    text = ground.get_contrast_text(1.0)
    moved = _away(ground, text.inverse, lambda each: contrast(each + text.with_alpha(_TEXT), each) >= LEAST)
    return {"block-cursor-background": moved.hex, "block-cursor-foreground": f"auto {_TEXT:.0%}"}


def _share(variable: str) -> float:
    """The share of black or white in a grey: 0.6 of `auto 60%`."""
    return float(variable.partition(" ")[2].removesuffix("%") or 100) / 100


def _least_share(grounds: Iterable[tuple[Color, Color]]) -> float:
    """The smallest share of black or white that can be read.

    Args:
        grounds: Pairs of the ground that the ink is mixed with, and the one under it, which differ in a selected row.
    """
    pairs = list(grounds)
    for percent in range(30, 100):
        inks = [(mixed + mixed.get_contrast_text(percent / 100), ground) for mixed, ground in pairs]
        if all(contrast(ink, ground) >= LEAST for ink, ground in inks):
            return percent / 100
    return 1.0


# ---- inks ---------------------------------------------------------------------------------------


def panel_css(kind: str) -> str:
    """The CSS for the frame of a panel; one with the class `-line` only has a left border while it has the focus.

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
    {kind}.-line {{ border: none; }}
    {kind}.-line:focus {{ border-left: outer $primary; padding: 0 1 0 0; }}
    """


class Inked(Widget):
    """A widget that draws with the named inks.

    It comes last among several base classes: Textual uses only the CSS of the first one.
    """

    _mixed_inks: dict[str, Style] | None = None

    @property
    def colorful(self) -> bool:
        """True if the terminal has enough colors for a scale; if not, glyphs and underlines are used."""
        return not self.app.no_color and self.app.console.color_system in ("256", "truecolor")

    @property
    def dark(self) -> bool:
        return self.app.current_theme.dark

    def ink(self, name: str) -> Style:
        """One of the named inks, on the widget's ground."""
        if self._mixed_inks is None:
            self._mixed_inks = {}
        if (known := self._mixed_inks.get(name)) is not None:
            return known
        ink, ground = _INKS[name], self.background_colors[1]
        style = self.rich_style + ink.style
        if ink.ground:  # blended with the widget's ground; the colour is blended with both
            ground += _theme_colour(self, ink.ground, ink.ground_share, ground)
            style += Style(bgcolor=ground.rich_color)
        if ink.colour:
            colour = _theme_colour(self, ink.colour, ink.share, ground)
            style += Style(color=(ground + colour).rich_color)
        self._mixed_inks[name] = style
        return style

    def notify_style_update(self) -> None:
        super().notify_style_update()
        if self._mixed_inks is not None:
            self._mixed_inks = None
            self.refresh()


def _theme_colour(widget: Widget, name: str, share: float, ground: Color) -> Color:
    """A colour of the theme, from `#e0e0e0`, `ansi_blue 50%`, or `auto 60%`, which contrasts with the ground."""
    colour, _, percent = widget.app.theme_variables[name].partition(" ")
    share *= float(percent.removesuffix("%") or 100) / 100
    return ground.get_contrast_text(share) if colour == "auto" else Color.parse(colour).multiply_alpha(share)
