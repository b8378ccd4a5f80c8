"""Where two prompts stop sharing a prefix, and why: a KV cache of one serves the other up to there. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import takewhile
from typing import Literal, Protocol

from engine.frozen import frozen
from engine.protocol import ChatOptions, Message, PromptOpened, TurnDiffers
from engine.protocol.tokens import Piece

Cause = Literal[
    "encoded anew", "thinking", "end of the answer", "date or time", "moved", "order of tools", "tool call",
    "white space", "other text",
]  # fmt: skip
SENTENCES: dict[Cause, str] = {
    "encoded anew": "the text is the same, cut into other tokens",
    "thinking": "one of them has the thinking that the other leaves out, as templates do with earlier turns",
    "end of the answer": "the template ends the answer with another token than the model did",
    "date or time": "a date or a time is written into the text",
    "moved": "the template moves the system prompt or the tools after later messages, or leaves them out",
    "order of tools": "the same tools stand in another order",
    "tool call": "the template writes the call of a tool in another way than the model did",
    "white space": "the same text follows after other white space",
    "other text": "the text differs",
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
_THOUGHT = ("</think>", "[/THINK]", "</seed:think>", "<|END_THINKING|>")
"""How it ends: the answer is what follows."""
_NEAR = 24
"""Characters around the place in which the mark of a cause is looked for."""
_SAME = 12
"""Characters that must go on equally after white space."""
_LANDMARK = 80
"""Characters of a message by which it is found in a prompt."""
_DATED = (
    r"\d{1,4}(?:[-/.:]\d{1,2})+|\b(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\.? \d|\b\d{1,2} "
    r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)|\b(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day\b"
)


class Cut(Protocol):
    """A token as far as it is compared."""

    @property
    def id(self) -> int: ...
    @property
    def raw(self) -> bytes: ...
    @property
    def special(self) -> bool: ...


class PathToken(Cut, Protocol):
    """A token of a session's path."""

    @property
    def node(self) -> int: ...


@frozen
class SentPrompt:
    """One request as its prompt was made."""

    messages: Sequence[Message]
    options: ChatOptions
    pieces: Sequence[Cut]
    """The prompt's tokens, and those of the answer that a cache holds behind them."""
    answer: int = 0
    """How many the answer has."""

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


@frozen
class Broken:
    """A prompt that could use a part alone of the KV cache that was there before it."""

    shared: int
    """Tokens that it begins with, and could use."""
    before: int
    """Tokens that the cache held."""
    anew: int
    """Tokens of it that had to run."""
    cause: Cause

    @property
    def lost(self) -> int:
        """Tokens that were of no use to it."""
        return self.before - self.shared


def broken_by(earlier: PromptOpened | None, path: Sequence[PathToken], opened: PromptOpened) -> Broken | None:
    """Find what a conversation that goes on, or was changed, lost of the KV cache.

    Args:
        earlier: The path's last prompt before.
        path: All tokens of the path before.
        opened: The prompt that was opened.

    Returns:
        None where it lost nothing, is another conversation, or could use another part of the cache than the path's.
    """
    if earlier is None or opened.parent or not (earlier.messages and opened.messages and earlier.tokens):
        return None
    last = earlier.tokens[-1].node
    end = next((slot for slot, item in enumerate(path, 1) if item.node == last), None)
    if end is None:
        return None
    one = SentPrompt(earlier.messages, earlier.options, path, len(path) - end)
    found = parting_of(one, SentPrompt(opened.messages, opened.options, opened.tokens))
    # where the row after the last shared token wasn't kept, that token ran again
    if found.cause is None or opened.held not in (found.shared - 1, found.shared):
        return None
    if found.cause == "other text" and opened.messages[: len(earlier.messages)] != earlier.messages:
        return None
    return Broken(found.shared, len(path), found.anew, found.cause)


def template_parting(opened: PromptOpened, path: Sequence[PathToken], differs: TurnDiffers) -> Parting:
    """Where a template that is not additive parts from the path, whose tokens the cache holds.

    Args:
        opened: The path's last prompt.
        path: All its tokens.
        differs: What the template makes of the conversation with another turn.
    """
    same = _text(path)[: differs.at] + differs.template
    rest = same.removeprefix(_text(path[: differs.kept]))
    other: list[Cut] = [*path[: differs.kept], Piece(-1, rest, rest.encode(), False)]
    end = next((slot for slot, item in enumerate(path, 1) if item.node == opened.tokens[-1].node), len(path))
    return parting_of(
        SentPrompt(opened.messages, opened.options, path, len(path) - end),
        SentPrompt(opened.messages, opened.options, other),
    )


def _text(pieces: Sequence[Cut]) -> str:
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
    place = min(_NEAR, len(before)) + at
    near = [before[-_NEAR:] + text[: at + _NEAR] for text in (rest, others)]
    thoughts = [{mark for mark in THINKING if _touches(_spans(mark, text), place, 2)} for text in near]
    if thoughts[0] != thoughts[1] or _thought(rest, others) or _thought(others, rest):
        return "thinking"
    answered = shared >= len(one.pieces) - one.answer
    if answered and shared == len(one.pieces) - 1 and first[0].special:
        return "end of the answer"
    if all(_touches([found.span() for found in re.finditer(_DATED, text)], place, 1) for text in near):
        return "date or time"
    if _moved(one, other):
        return "moved"
    if one.tools != other.tools and sorted(one.tools) == sorted(other.tools):
        return "order of tools"
    if answered and _calls(other, len(one.messages)):
        return "tool call"
    return "white space" if _blank(rest[at:], others[at:]) else "other text"


def _thought(one: str, other: str) -> bool:
    """Tell whether the second text is what follows thinking in the first."""
    answers = (one.partition(mark)[2].lstrip()[:_SAME] for mark in _THOUGHT)
    return any(answer and other.lstrip().startswith(answer) for answer in answers)


def _blank(one: str, other: str) -> bool:
    """Tell whether two texts are the same but for the white space that one of them begins with."""
    first, second = (text.lstrip()[:_SAME] for text in (one, other))
    same = first.startswith(second) or second.startswith(first)
    return same and any(text[:1].isspace() for text in (one, other))


def _spans(mark: str, text: str) -> list[tuple[int, int]]:
    """Where a mark stands in a text."""
    return [found.span() for found in re.finditer(re.escape(mark), text)]


def _touches(spans: Sequence[tuple[int, int]], place: int, around: int) -> bool:
    """Tell whether one of some spans is at a place, or as near as a few characters."""
    return any(begin - around <= place <= end + around for begin, end in spans)


def _calls(request: SentPrompt, place: int) -> bool:
    """Tell whether the message at a place calls a tool."""
    return place < len(request.messages) and '"tool_calls"' in request.messages[place].more


def _moved(one: SentPrompt, other: SentPrompt) -> bool:
    """Tell whether the system prompt or the tools, the same in both, stand elsewhere among the messages, or in one
    prompt alone."""
    system, asked = (
        mine[:_LANDMARK] if (mine := _first(one, system)) == _first(other, system) else ""
        for system in (True, False)
    )
    tools = _name(min(one.tools)) if one.tools and sorted(one.tools) == sorted(other.tools) else ""
    texts = [_text(each.pieces) for each in (one, other)]
    marks = [system, tools, asked if all(asked in text for text in texts) else ""]
    orders = [sorted((mark for mark in marks if mark and mark in text), key=text.find) for text in texts]
    return orders[0] != orders[1]


def _first(request: SentPrompt, system: bool) -> str:
    """The system prompt, or the first message of another role; empty where there is none."""
    found = (each.content.strip() for each in request.messages if (each.role == "system") is system)
    return next(found, "")


def _name(tool: str) -> str:
    """The name of a tool as JSON has it; empty where it has none."""
    value = json.loads(tool)
    inner = value.get("function", value) if isinstance(value, dict) else {}
    return json.dumps(inner["name"]) if isinstance(inner, dict) and "name" in inner else ""
