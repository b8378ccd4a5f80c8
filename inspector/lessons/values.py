"""A value that an expression gives: a number with its unit, a token, a text, yes or no; and how sure it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from engine.frozen import frozen
from inspector.display import token_label, visible
from inspector.scales import bits, count, milliseconds, percent, size

Unit = Literal["token", "text", "truth", "probability", "bits", "ms", "bytes", "count", "number", "times"]
NEAR_BORDER = 0.02
"""A measured number that is nearer to a border, or to what it is compared with, than this share of it may fall on the
other side elsewhere."""
NEAR_TIMED = 0.3
"""The same of a number that rests on milliseconds."""


@frozen
class Value:
    """One value of this run."""

    unit: Unit
    raw: str | float | bool
    label: str = ""
    """Of a token: as it is written on the screen."""
    fragile: str = ""
    """Why another machine might have another value, as a sentence's end; empty where it is safe."""
    timed: bool = False
    """Whether it rests on milliseconds."""
    margin: str = ""
    """How far a token that was picked is from another one; empty where it isn't known."""

    @property
    def number(self) -> float | None:
        """The number that it is; None for words."""
        return None if isinstance(self.raw, bool | str) else float(self.raw)

    @property
    def exact(self) -> bool:
        """Whether it is counted, and so the same on each machine, unless a token differs."""
        return self.unit in ("count", "bytes", "truth", "text", "token")

    @property
    def plain(self) -> str:
        """As an option without a test writes it: a token without the spaces around it."""
        if isinstance(self.raw, bool):
            return "true" if self.raw else "false"
        return self.raw if isinstance(self.raw, str) else f"{self.raw:g}"

    def written(self, form: str = "") -> str:
        """The value in a sentence; printable.

        Args:
            form: Of `FORMS`; empty for that of the unit.
        """
        if form:
            return FORMS[form](self.number if self.number is not None else 0.0)
        if isinstance(self.raw, bool):
            return "yes" if self.raw else "no"
        if isinstance(self.raw, str):
            return f"‘{self.label or token_label(self.raw)}’" if self.unit == "token" else visible(self.raw)
        return _WRITTEN[self.unit](self.raw)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


_WRITTEN: Mapping[str, Callable[[float], str]] = {
    "probability": percent,
    "bits": bits,
    "ms": milliseconds,
    "bytes": lambda value: size(round(value)),
    "count": lambda value: count(round(value)),
    "number": _number,
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
