"""Where two prompts stop sharing a prefix, and why: a KV cache of one serves the other up to there. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import takewhile
from typing import Literal

from engine.frozen import frozen
from engine.protocol import ChatOptions, Message
from engine.protocol.tokens import Piece

Cause = Literal["encoded anew", "white space", "thinking", "order of tools", "date or time", "other text"]
SENTENCES: dict[Cause, str] = {
    "encoded anew": "the text is the same, cut into other tokens",
    "white space": "the same text goes on after other white space",
    "thinking": "one of them has the thinking that the other leaves out, as templates do with earlier turns",
    "order of tools": "the same tools stand in another order",
    "date or time": "a date or a time is written into the text",
    "other text": "the text is another one",
}
THINKING = (
    "<think",
    "</think",
    "[THINK]",
    "[/THINK]",
    "<seed:think",
    "<|channel|>analysis",
    "<|START_THINKING|>",
)
"""How thinking begins or ends in the templates of model families."""
_NEAR = 24
"""Characters around the place in which the mark of a cause is looked for."""
_SAME = 12
"""Characters that must go on equally after white space."""
_DATED = re.compile(
    r"\d{1,4}(?:[-/.:]\d{1,2})+|\b(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\.? \d|\b\d{1,2} "
    r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)|\b(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day\b"
)


@frozen
class SentPrompt:
    """One request as its prompt was made."""

    messages: Sequence[Message]
    options: ChatOptions
    pieces: Sequence[Piece]
    """The prompt's tokens."""

    @property
    def tools(self) -> list[str]:
        """Its tools, each as JSON."""
        listed = json.loads(self.options.tools) if self.options.tools else []
        return [json.dumps(each, sort_keys=True) for each in listed]


@frozen
class Parting:
    """The place at which two prompts stop being the same."""

    shared: int
    """Tokens that both begin with."""
    lost: int
    """Tokens of the first one after these: of a KV cache that holds it, they are of no use to the second."""
    anew: int
    """Tokens of the second one after these, which have to be computed."""
    cause: Cause | None
    """None where one is the beginning of the other."""
    before: str
    """The text before the place."""
    one: str
    """The first one's text from there on."""
    other: str
    message: int | None
    """Number of the first message, from 0, in which the requests themselves differ; None where they don't: then it is
    the template, or the encoding, that makes the difference."""


def parting_of(one: SentPrompt, other: SentPrompt) -> Parting:
    """Find where two prompts stop being the same.

    Args:
        one: The earlier request, whose tokens a cache holds.
        other: The later one.
    """
    pairs = zip(one.pieces, other.pieces, strict=False)
    shared = sum(1 for _ in takewhile(lambda pair: pair[0].id == pair[1].id, pairs))
    before, rest = _text(one.pieces[:shared]), _text(one.pieces[shared:])
    others = _text(other.pieces[shared:])
    ends = shared in (len(one.pieces), len(other.pieces))
    cause = None if ends else _cause(one, other, shared, before, rest, others)
    return Parting(
        shared, len(one.pieces) - shared, len(other.pieces) - shared, cause, before, rest, others,
        None if ends else _message(one.messages, other.messages),
    )  # fmt: skip


def _text(pieces: Sequence[Piece]) -> str:
    return b"".join(each.raw for each in pieces).decode("utf-8", "replace")


def _message(one: Sequence[Message], other: Sequence[Message]) -> int | None:
    """The first message that both have, and have differently."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (mine, theirs) in pairs if mine != theirs), None)


def _cause(one: SentPrompt, other: SentPrompt, shared: int, before: str, rest: str, others: str) -> Cause:
    """The cause, the most certain one first."""
    first = (one.pieces[shared], other.pieces[shared])
    longer = max(len(each.raw) for each in first)
    mine, theirs = (b"".join(each.raw for each in made.pieces[shared:]) for made in (one, other))
    special = any(each.special for each in first)
    if not special and mine[:longer] == theirs[:longer] and min(len(mine), len(theirs)) >= longer:
        return "encoded anew"
    at = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(rest, others, strict=False)))
    near = [before[-_NEAR:] + text[: at + _NEAR] for text in (rest, others)]
    marked = [any(mark in text for mark in THINKING) for text in near]
    if marked[0] != marked[1]:
        return "thinking"
    if one.tools != other.tools and sorted(one.tools) == sorted(other.tools):
        return "order of tools"
    stripped = [text[at:].lstrip()[:_SAME] for text in (rest, others)]
    blank = any(text[at : at + 1].isspace() for text in (rest, others))
    if blank and stripped[0] == stripped[1]:
        return "white space"
    if all(any(_touches(found, text, at, before) for found in _DATED.finditer(text)) for text in near):
        return "date or time"
    return "other text"


def _touches(found: re.Match[str], text: str, at: int, before: str) -> bool:
    """Tell whether a date stands at the place where the texts part."""
    place = min(_NEAR, len(before)) + at
    return found.start() - 1 <= place <= found.end() + 1
