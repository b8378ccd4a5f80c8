"""The effect of a grammar after a token, in sentences, and as a table of what it allows; all of it is printable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.segment import Segment

from engine.grammar_settings import GrammarKind
from engine.protocol import ExpectedBeginning, GrammarReading
from inspector import scales
from inspector.display import pad, quoted, token_label, visible
from inspector.widgets.charts import bar

if TYPE_CHECKING:
    from inspector.widgets.canvas import Canvas, Row

PERSON = """\
{"type": "object",
 "properties": {"name": {"type": "string", "maxLength": 12},
                "age": {"type": "integer", "minimum": 0, "maximum": 99}},
 "required": ["name", "age"], "additionalProperties": false}"""
EXAMPLES: tuple[tuple[str, GrammarKind, str], ...] = (
    ("digits", "regex", "[0-9]+"),
    ("date", "regex", "20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"),
    ("JSON", "json-schema", PERSON),
    ("one of", "choices", " yes\n no\n maybe"),
)
"""Grammars by name, for the dialog to fill in."""
FIGHTS = 0.01
"""The mass below which the grammar works against the model."""


def outside(reading: GrammarReading | None) -> bool:
    """True if the text left the grammar."""
    return reading is not None and reading.state == "left"


def warning(reading: GrammarReading) -> str:
    """A warning if the grammar works against the model; empty if it doesn't."""
    if reading.state in ("left", "ended") or not reading.allowed or reading.mass >= FIGHTS:
        return ""
    return f"The grammar works against the model: what it allows has {scales.share(reading.mass)} of its probability."


def allows(reading: GrammarReading) -> str:
    """The number of allowed tokens, and their probability by the model."""
    tokens, them = scales.counted(reading.allowed, "token"), "it" if reading.allowed == 1 else "them"
    return f"It allows {tokens}; the model gives {them} {scales.share(reading.mass)}."


ENDINGS = {
    "open": "The text may not end here.",
    "accepting": "The text may end here: it is complete as it is, and may go on.",
    "complete": "The text is complete: it must end here.",
    "left": "The text left the grammar: from there on nothing is forbidden.",
    "ended": "The text that had to match ended: nothing is forbidden any more.",
}
"""The sentence of each state: the text may end here, must end, or is out of the grammar's reach."""


def forced(reading: GrammarReading) -> str:
    """The text that is certain; empty if there is a choice."""
    if not reading.forced:
        return ""
    label = token_label(reading.forced.decode("utf-8", "replace"), reading.forced)
    return f"Forced: every valid text continues with {quoted(label)}."


def sentences(reading: GrammarReading) -> list[str]:
    """The whole reading in sentences, the most important first."""
    ending = ENDINGS[reading.state]
    if reading.state in ("left", "ended"):
        return [ending]
    counted = allows(reading) if reading.allowed else ""
    return [*filter(None, (warning(reading), forced(reading), counted)), ending]


_WORDS, _COUNT, _SHARE, _BAR = 22, 8, 11, 24


def beginnings(expected: Sequence[ExpectedBeginning], on: Canvas, width: int, room: int) -> list[Row]:
    """The texts that a grammar allows next: each beginning with the number of its tokens and their probability by the
    model, as many as fit."""
    if not expected or room < 2:
        return []
    if len(expected) >= room:
        expected, left = expected[: room - 2], expected[room - 2 :]
        masses = [each.mass for each in left if each.mass is not None]
        others, tokens = f"{scales.count(len(left))} others", sum(each.tokens for each in left)
        expected = (*expected, ExpectedBeginning(others, tokens, sum(masses) if masses else None))
    cells = max(0, min(_BAR, width - _WORDS - _COUNT - _SHARE - 2))
    head = pad("allowed next", _WORDS) + pad("tokens", _COUNT, right=True) + pad("model", _SHARE, right=True)
    rows: list[Row] = [[Segment(head, on.ink("muted"))]]
    for each in expected:
        mass = "" if each.mass is None else scales.share(each.mass)
        numbers = pad(scales.count(each.tokens), _COUNT, right=True) + pad(mass, _SHARE, right=True)
        row = [Segment(pad(visible(each.words), _WORDS), on.ink("strong")), Segment(numbers)]
        if each.mass is not None and cells:
            drawn = Segment(bar(min(1.0, each.mass), cells), on.ink("track") + on.data())
            row += [Segment("  "), drawn]
        rows.append(row)
    return rows
