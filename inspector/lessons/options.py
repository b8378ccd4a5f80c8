"""An option of a question: its words, and the values that it holds."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from inspector.lessons.values import Value

_RANGE = re.compile(r"^(?P<low>[-+.\d]*)\s*\.\.\s*(?P<high>[-+.\d]*)$")
_TEST = re.compile(r"\s*\{(?P<test>[^{}]*)\}\s*$")
NEAR_BORDER = 0.02
"""A measured number that is nearer to a border of its option than this share of it may fall on the other side."""
NEAR_TIMED = 0.3
"""The same of a number that rests on milliseconds."""


@dataclass(frozen=True, slots=True)
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
        share = NEAR_TIMED if value.timed else NEAR_BORDER
        return any(
            abs(value.number - border) < share * max(abs(border), abs(value.number))
            for border in self.borders
            if math.isfinite(border)
        )


def option(text: str, line: int) -> Option:
    """Read an option."""
    match = _TEST.search(text)
    words = text[: match.start()] if match else text
    return Option(words.strip(), match["test"] if match else words, line)
