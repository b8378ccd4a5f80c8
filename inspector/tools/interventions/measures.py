"""What a cell of a map says: numbers in few cells, steps of colours, and glyphs where there are no colours."""

from __future__ import annotations

from collections.abc import Callable

from rich.style import Style

from engine.frozen import frozen
from engine.protocol import SweptUnit
from inspector import scales
from inspector.widgets.canvas import Canvas, colourful, is_dark, rgb_style
from inspector.widgets.token_styles import heat_style

GLYPHS, BELOW = "·:░▒▓█", "·-~=≡#"
"""For each step of a value above 0, and of one below, from calm to strongest."""
NOTHING = "·"
"""A number too small for its cells."""
_ABOVE_DARK = ((62, 40, 16), (104, 62, 16), (155, 88, 14), (214, 120, 24), (255, 178, 90))
_BELOW_DARK = ((24, 40, 66), (30, 64, 110), (40, 95, 165), (70, 135, 215), (140, 190, 250))
_ABOVE_LIGHT = ((254, 232, 206), (253, 205, 150), (250, 160, 85), (220, 105, 20), (150, 60, 5))
_BELOW_LIGHT = ((222, 235, 247), (180, 210, 238), (120, 170, 220), (50, 115, 185), (8, 60, 130))
_INKS: tuple[scales.Rgb, scales.Rgb] = ((16, 16, 20), (248, 248, 250))


@frozen
class UnitMeasure:
    """What switching off a unit did, as a number."""

    name: str
    unit: str
    says: str
    """For the legend."""
    value: Callable[[SweptUnit], float]
    edges: tuple[float, ...]
    """Where each step of the colours begins, of the value without its sign."""
    signed: bool

    def step(self, value: float) -> int:
        """Of the colours: 0 for none to 5, below 0 for a value below 0."""
        return step_of(value, self.edges)

    def strength(self, unit: SweptUnit) -> float:
        """How much it did, whichever way."""
        return abs(self.value(unit))


MEASURES = (
    UnitMeasure(
        "KL", "KL in bits", "KL in bits, how far all probabilities move, from",
        lambda unit: unit.kl_bits, scales.KL_BITS, False,
    ),
    UnitMeasure(
        "logit", "change of the logit", "change of the followed token's logit, from",
        lambda unit: unit.logit_change, (0.1, 0.5, 1.0, 2.0, 4.0), True,
    ),
)  # fmt: skip
"""In the order in which a key goes through them."""


def step_of(value: float, edges: tuple[float, ...]) -> int:
    """The step of a value, with its sign."""
    step = sum(abs(value) >= edge for edge in edges)
    return -step if value < 0 else step


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
    """The colours of a step: of signed ones blue below 0 and orange above; underlines where there are no colours."""
    if not step:
        return Style()
    dark = is_dark(on.app)
    if not signed or not colourful(on.app):
        return heat_style(abs(step), dark, colourful(on.app))
    above, below = (_ABOVE_DARK, _BELOW_DARK) if dark else (_ABOVE_LIGHT, _BELOW_LIGHT)
    colour = (above if step > 0 else below)[abs(step) - 1]
    return rgb_style(max(_INKS, key=lambda ink: scales.contrast(ink, colour)), colour)


def glyph(on: Canvas, step: int) -> str:
    """What stands for a number that there is no room for: a blank where colours tell."""
    return " " if colourful(on.app) else GLYPHS[step] if step >= 0 else BELOW[-step]
