"""The value of an expression: a number with its unit, a token, a text, yes or no; and whether it is safe.

Machines round differently: a token picked by a narrow margin, or a number near a border, may differ on a different one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from engine.protocol import Distribution
from inspector.display import token_label, visible
from inspector.scales import bits, count, cut, milliseconds, percent, size

Unit = Literal[
    "token", "text", "truth", "probability", "bits", "ms", "bytes", "count", "number", "times", "draw"
]
NEAREST_DRAW = 0.005
"""A draw nearer to a border than this may fall on a different token on a machine that rounds differently."""
NEAREST_TOP = 0.02
"""The same for the difference of the two largest probabilities."""
NEAR_BORDER = 0.02
"""A measured number nearer to a border, or to the number that it is compared with, than this share of it may fall on
the other side on another machine."""
NEAR_TIMED = 0.3
"""The same for a number computed from times."""


class Value(Struct, frozen=True):
    """One value of this run."""

    unit: Unit
    raw: str | float | bool
    label: str = ""
    """A token as it is written on the screen."""
    fragile: str = ""
    """The reason that a different machine might have a different value, as a sentence's end; empty if it is safe."""
    timed: bool = False
    """True if it is computed from times."""
    margin: str = ""
    """The distance of a picked token from the next one, in words; empty if it isn't known."""

    @property
    def number(self) -> float | None:
        """The value as a number; None for words, yes or no."""
        return None if isinstance(self.raw, bool | str) else float(self.raw)

    @property
    def exact(self) -> bool:
        """True if it isn't measured, and so is the same on each machine unless a token differs."""
        return self.unit in ("count", "bytes", "truth", "text", "token")

    @property
    def plain(self) -> str:
        """The value as an option without a test writes it."""
        if isinstance(self.raw, bool):
            return "true" if self.raw else "false"
        return self.raw if isinstance(self.raw, str) else f"{self.raw:g}"

    def written(self, form: str = "") -> str:
        """The value in a sentence; printable.

        Args:
            form: A name of `FORMS`; empty for the unit's own form.
        """
        if self.unit == "draw" and form in _DIGITS:
            return cut(float(self.raw), _DIGITS[form])
        if form:
            return FORMS[form](self.number if self.number is not None else 0.0).replace("-", "−")
        if isinstance(self.raw, bool):
            return "yes" if self.raw else "no"
        if isinstance(self.raw, str):
            return f"“{self.label or token_label(self.raw)}”" if self.unit == "token" else visible(self.raw)
        return _WRITTEN[self.unit](self.raw).replace("-", "−")


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


_WRITTEN: Mapping[str, Callable[[float], str]] = {
    "probability": percent,
    "bits": bits,
    "ms": milliseconds,
    "bytes": lambda value: size(round(value)),
    "count": lambda value: count(round(value)),
    "number": _number,
    "draw": cut,
    "times": lambda value: f"{value:.1f} times",
}

FORMS: Mapping[str, Callable[[float], str]] = {
    "0": lambda value: f"{value:,.0f}",
    ".1": lambda value: f"{value:.1f}",
    ".2": lambda value: f"{value:.2f}",
    ".3": lambda value: f"{value:.3f}",
    "%": lambda value: f"{100 * value:.0f} %",
    ".1%": lambda value: f"{100 * value:.1f} %",
    "bits": bits,
    "bytes": lambda value: size(round(value)),
}
"""Forms of numbers that a template may ask for: `{next.entropy:.1}`."""
_DIGITS = {".1": 1, ".2": 2, ".3": 3}


# ---- the margin of a picked token ---------------------------------------------------------------


def margin(distribution: Distribution) -> str:
    """The distance of the picked token from the next one, in words."""
    if (nearest := _nearest(distribution)) is not None:
        return f"draw {nearest:.3f} from a border"
    first, second = (*[each.prob for each in distribution.candidates], 0.0)[:2]
    return f"top two {first - second:.3f} apart"


def _nearest(distribution: Distribution) -> float | None:
    """The distance from the draw to the nearest border of the picked token's share; None for greedy."""
    draw, low, high = distribution.draw, distribution.draw_from, distribution.draw_to
    if draw is None or low is None or high is None:
        return None
    return min(draw - low if low > 0 else 1.0, high - draw if high < 1 else 1.0)


def near_draw(distribution: Distribution) -> str:
    """The reason that a different machine might pick a different token; empty if it is safe."""
    nearest = _nearest(distribution)
    if nearest is None:
        greedy = distribution.picked == distribution.candidates[0].id  # else penalties decided, not probs
        return near_top([each.prob for each in distribution.candidates]) if greedy else ""
    if nearest >= NEAREST_DRAW:
        return ""
    return f"the draw {distribution.draw:.3f} is {nearest:.4f} from a border; {NEAREST_DRAW} is the least"


def near_top(probs: Sequence[float]) -> str:
    """The reason that the most probable token isn't safe; empty if it is."""
    first, second = (*sorted(probs, reverse=True)[:2], 0.0, 0.0)[:2]
    if first - second >= NEAREST_TOP:
        return ""
    return f"the two most probable tokens are {first - second:.4f} apart; {NEAREST_TOP} is the least"
