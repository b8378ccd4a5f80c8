"""The effect of a grammar after a token, in sentences. Pure; all of it is printable."""

from __future__ import annotations

from engine.grammar_settings import GrammarKind
from engine.protocol import GrammarReading
from inspector import scales
from inspector.display import quoted, token_label

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
"""Below this mass the grammar and the model want different texts."""


def outside(reading: GrammarReading | None) -> bool:
    """True if the text left the grammar."""
    return reading is not None and reading.state == "left"


def warning(reading: GrammarReading) -> str:
    """A warning if the grammar works against the model; empty if it doesn't."""
    if reading.state in ("left", "ended") or not reading.allowed or reading.mass >= FIGHTS:
        return ""
    return f"The grammar works against the model: what it allows has {scales.share(reading.mass)} of its probability."


def allows(reading: GrammarReading) -> str:
    """The number of tokens that it leaves, and their probability by the model."""
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
    """All of it, the most important first."""
    ending = ENDINGS[reading.state]
    if reading.state in ("left", "ended"):
        return [ending]
    counted = allows(reading) if reading.allowed else ""
    return [*filter(None, (warning(reading), forced(reading), counted)), ending]
