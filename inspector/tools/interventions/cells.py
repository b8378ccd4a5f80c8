"""A cell of a map: its number, its colours, and a glyph where there are none."""

from __future__ import annotations

from rich.style import Style

from inspector import scales
from inspector.widgets.canvas import Canvas, colourful, is_dark, rgb_style
from inspector.widgets.token_lines import heat_style

GLYPHS, BELOW = "·:░▒▓█", "·-~=≡#"
"""For each step of a value above 0, and of one below, from calm to strongest."""
NOTHING = "·"
"""A number too small for its cells."""


def figure(value: float, cells: int, signed: bool = False) -> str:
    """A number in so many cells, 3 or more: `1.20`, `.12`, `-1.2`, `+12`; a dot for next to nothing."""
    sign = ("-" if value < 0 else "+") if signed else ""
    size, room = abs(value), cells - len(sign)
    for digits in (2, 1, 0):
        text = f"{size:.{digits}f}"
        if not float(text):
            return NOTHING
        if len(text) <= room:
            return sign + text
        if text.startswith("0.") and len(text) - 1 <= room:
            return sign + text[1:]
    return sign + "9" * room


def ground(on: Canvas, step: int, signed: bool = True) -> Style:
    """The colours of a step: of signed ones blue above 0 and orange below; underlines where there are no colours."""
    if not step:
        return Style()
    dark = is_dark(on.app)
    if not signed or not colourful(on.app):
        return heat_style(abs(step), dark, colourful(on.app))
    return rgb_style(*scales.opposed_heat(step, dark))


def glyph(on: Canvas, step: int) -> str:
    """The sign for a number that there is no room for: a blank where there are colours."""
    return " " if colourful(on.app) else GLYPHS[step] if step >= 0 else BELOW[-step]
