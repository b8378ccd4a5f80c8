"""Breakpoints of a run: conditions on the next token, on the text so far and on the count.

One table (`CONDITIONS`) names every condition once: the dialog, the flags, the file that keeps them and the checks are
made from it. Standard library alone; `engine.decoding.run` evaluates them.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Mapping
from typing import Any, Literal

from engine.errors import SettingsError
from engine.frozen import frozen

LONGEST = 200
"""Characters of a text or a regular expression at most."""
REACH = 1000
"""Characters before the newest token's text that a match may begin in."""
SURE = 0.5
"""A token is sure when the model gives it at least this probability: at least that of all others together."""


@frozen
class Breakpoints:
    """Conditions, each None (or False) where it is off; the first that holds stops the run."""

    entropy_above: float | None = None
    """Bits of the model's own distribution of the next token."""
    prob_below: float | None = None
    """The model's probability of the token that the sampler picked next."""
    rank_above: int | None = None
    """Of the token that the sampler picked next."""
    margin_below: float | None = None
    """Probability of the most probable token less that of the second: a fork point."""
    mass_below: float | None = None
    """Probability, by the model, of all the tokens that the grammar allows next: below it the grammar fights the
    model."""
    text: str | None = None
    """The completion contains it, since a token of this run."""
    regex: str | None = None
    """The completion matches it somewhere, since a token of this run."""
    tokens: int | None = None
    """This many were taken in this run."""
    eos: bool = False
    """The sampler picked an end-of-sequence token next: stop before it is taken."""
    all_of: bool = False
    """Stop only where all that are set hold at once; text, regex and tokens stay true once they are."""
    segment: str | None = None
    """An event of a reply's segments that the newest token brings, one of `SEGMENT_EVENTS`: `thinking ends`."""

    @property
    def active(self) -> tuple[Condition, ...]:
        """The conditions that are set, in the table's order."""
        found = []
        for condition in CONDITIONS:
            value = getattr(self, condition.name)
            if value is not None and value is not False:
                found.append(condition)
        return tuple(found)

    @property
    def conditions(self) -> tuple[str, ...]:
        """The conditions that are set, in few characters each: `entropy > 3`. Texts are unchanged."""
        return tuple(condition.describe(getattr(self, condition.name)) for condition in self.active)


UNSURE = Breakpoints(prob_below=SURE)
"""Where a run over sure tokens stops; a text that a grammar makes certain is sure, whatever the model thinks of it."""
Kind = Literal["bits", "share", "count", "text", "regex", "switch", "event"]
SEGMENT_EVENTS = tuple(
    f"{kind} {what}" for kind in ("thinking", "answer", "tool call") for what in ("begins", "ends")
)
"""Where the segments of a reply begin and end."""


@frozen
class Condition:
    """One condition: its name, type and words."""

    name: str
    """The field of `Breakpoints`."""
    kind: Kind
    label: str
    help: str
    short: str
    """The condition in few characters, with `{}` for the value."""

    @property
    def flag(self) -> str:
        """The command-line flag."""
        return "--break-" + self.name.partition("_")[0]

    @property
    def bounds(self) -> str:
        """The range in words, for messages."""
        return _BOUNDS[self.kind]

    def parse(self, text: str) -> Any:
        """Read a value as typed by a person.

        Args:
            text: What was typed: a number, a share as `0.05` or `5 %`, or a text; empty is off.

        Returns:
            The value, in range; None where it is off.

        Raises:
            SettingsError: It is no such value or is out of range.
        """
        if self.kind in ("text", "regex"):
            value: Any = text or None
        elif self.kind == "event":
            value = " ".join(text.split()).lower() or None
        elif not text.strip():
            return None
        else:
            value = self._number(text.strip())
        self.check(value)
        return value

    def _number(self, text: str) -> float | int:
        try:
            if self.kind == "share" and text.endswith("%"):
                return float(f"{float(text[:-1]) / 100:.12g}")
            return int(text) if self.kind == "count" else float(text)
        except ValueError:
            raise SettingsError(self.name, f"{self.label} must be {self.bounds}, not {text!r}.") from None

    def format(self, value: Any) -> str:
        """A value as a person types it; `parse` reads it back."""
        if value is None:
            return ""
        return f"{value:.12g}" if self.kind in ("bits", "share") else str(value)

    def describe(self, value: Any) -> str:
        """The condition with a value, in few characters."""
        return self.short.format(percent(value) if self.kind == "share" else self.format(value))

    def _shown(self, value: object) -> str:
        """A value that is out of range, for messages."""
        if isinstance(value, str) and self.kind in ("text", "regex"):
            return f"{len(value)} characters"
        return f"{value:.12g}" if isinstance(value, float) else repr(value)[:40]

    def check(self, value: Any) -> None:
        """Refuse a value that is out of range; None is off and always in range.

        Raises:
            SettingsError: With the range in words, or with what is wrong with a regular expression.
        """
        if value is None:
            return
        if not _OF_KIND[self.kind](value):
            raise SettingsError(self.name, f"{self.label} must be {self.bounds}, not {self._shown(value)}.")
        if self.kind == "regex":
            _check_regex(self, value)


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _text(value: object) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= LONGEST


_OF_KIND: Mapping[Kind, Any] = {
    "bits": lambda value: _number(value) and value >= 0,
    "share": lambda value: _number(value) and 0 <= value <= 1,
    "count": lambda value: _number(value) and isinstance(value, int) and value >= 1,
    "text": _text,
    "regex": _text,
    "switch": lambda value: isinstance(value, bool),
    "event": lambda value: value in SEGMENT_EVENTS,
}
_BOUNDS: Mapping[Kind, str] = {
    "bits": "a number of bits from 0 up",
    "share": "a number from 0 to 1, or 0 % to 100 %",
    "count": "a whole number from 1 up",
    "text": f"a text of 1 to {LONGEST} characters",
    "regex": f"a regular expression of 1 to {LONGEST} characters",
    "switch": "on or off",
    "event": f"one of {', '.join(SEGMENT_EVENTS)}",
}


def _check_regex(condition: Condition, pattern: str) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of syntax whose meaning may change
            empty = re.compile(pattern).search("")
    except (re.error, OverflowError, RecursionError) as error:
        raise SettingsError(
            condition.name, f"{condition.label} can't be read: {error}.", "Put a backslash before a sign to match "
                "the sign itself."
        ) from None  # fmt: skip
    if empty is not None:
        raise SettingsError(
            condition.name,
            f"{condition.label} matches the empty text.",
            "It would stop the run at once: let it match at least one character.",
        )


CONDITIONS: tuple[Condition, ...] = (
    Condition("entropy_above", "bits", "entropy above", "model entropy, in bits", "entropy > {}"),
    Condition("prob_below", "share", "probability below", "of the picked token: 0.05 or 5 %", "p < {}"),
    Condition("rank_above", "count", "rank above", "of the picked token; 1 is the first", "rank > {}"),
    Condition("margin_below", "share", "margin below", "between the first two: a fork point", "margin < {}"),
    Condition("mass_below", "share", "mass below", "of all tokens that the grammar allows", "mass < {}"),
    Condition("eos", "switch", "end of sequence", "stop before its token is taken", "end of sequence"),
    Condition("tokens", "count", "tokens", "stop after this many in a run", "{} tokens"),
    Condition("text", "text", "text", "the completion contains it", "“{}”"),
    Condition("segment", "event", "segment", "such as thinking ends, answer begins, tool call begins", "{}"),
    Condition("regex", "regex", "regular expression", f"the completion's last {REACH:,} characters match it", "/{}/"),
)  # fmt: skip
"""Every condition, in the order of display."""
BY_NAME: Mapping[str, Condition] = {condition.name: condition for condition in CONDITIONS}


def percent(share: float) -> str:
    """A share of 1 as `5 %`, with at most three significant digits."""
    return f"{share * 100:.3g} %"


def check_breakpoints(points: Breakpoints) -> Breakpoints:
    """Return the breakpoints when each condition is in its range.

    Raises:
        SettingsError: For the first that is not.
    """
    for condition in CONDITIONS:
        condition.check(getattr(points, condition.name))
    return points
