"""An option of a question: its words, and the values that it holds."""

from __future__ import annotations

import math
import re

from engine.frozen import frozen
from inspector.lessons.values import NEAR_BORDER, NEAR_TIMED, Value

_RANGE = re.compile(r"^(?P<low>[-+.\d]*)\s*\.\.\s*(?P<high>[-+.\d]*)$")
_TEST = re.compile(r"\s*\{(?P<test>[^{}]*)\}\s*$")


@frozen
class Option:
    """One option.

    Its test is written in braces at its end: `about as long {..2}`, `yes {true}`, `it ends {eos}`. Without one, the
    option's own words are compared with the answer's text.
    """

    text: str
    test: str
    line: int

    def holds(self, value: Value) -> bool:
        """Whether it is the right one for a value."""
        if (borders := self.borders) is not None:
            return value.number is not None and borders[0] <= value.number < borders[1]
        return self.test.strip().casefold() == value.plain.strip().casefold()

    @property
    def borders(self) -> tuple[float, float] | None:
        """From where to below where, for a test that is a range; None for words."""
        match = _RANGE.match(self.test.strip())
        if match is None:
            return None
        low, high = match["low"], match["high"]
        try:
            return (float(low) if low else -math.inf, float(high) if high else math.inf)
        except ValueError:
            return None

    def near(self, value: Value) -> bool:
        """Whether a value that it holds is so near to a border that another machine may have it on the other side."""
        if self.borders is None or value.number is None or value.exact:
            return False
        return self._apart(value.number) < (NEAR_TIMED if value.timed else NEAR_BORDER)

    def margin(self, value: Value) -> str:
        """How far a number that it holds is from its nearest border, in words; empty where there is none."""
        if self.borders is None or value.number is None or not math.isfinite(self._apart(value.number)):
            return ""
        return f"{100 * self._apart(value.number):.0f} % from a border"

    def _apart(self, number: float) -> float:
        """From the nearest border, as a share of the larger of the two."""
        borders = [border for border in self.borders or () if math.isfinite(border)]
        return min(
            (abs(number - border) / (max(abs(border), abs(number)) or 1) for border in borders),
            default=math.inf,
        )


def option(text: str, line: int) -> Option:
    """Read an option."""
    match = _TEST.search(text)
    words = text[: match.start()] if match else text
    return Option(words.strip(), match["test"] if match else words, line)
