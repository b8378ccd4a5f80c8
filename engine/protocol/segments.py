"""Segments: whose each token of a conversation is, how replies mark theirs, and the check of tool calls."""

from __future__ import annotations

from typing import ClassVar, Literal

from msgspec import Struct

from engine.protocol.base import Command, Record
from engine.protocol.numbers import Count

SegmentKind = Literal[
    "system", "user", "thinking", "answer", "tool call", "tool result", "tools", "markup"
]  # fmt: skip
"""`tools`: definitions of tools. `markup`: what the template wrote, and special tokens."""


class SegmentRun(Struct, frozen=True):
    """Tokens of a prompt that are of one kind, one after another."""

    kind: SegmentKind
    begin: Count
    """Place of the first among the prompt's own tokens, from 0."""
    end: Count
    """Place behind the last."""
    message: Count
    """The message that they are of, from 0; -1 for definitions of tools."""


class LeftOut(Struct, frozen=True):
    """A part of a conversation that its prompt lacks."""

    kind: SegmentKind
    message: Count
    """-1 for definitions of tools."""
    written: bool
    """False where the template leaves it out. True where it may stand in the text in another form, as markup."""


class ReplyMark(Struct, frozen=True):
    """A text that changes whose the following text of a reply is."""

    at: str
    """State in which it is looked for: a kind, or a kind and a name behind a colon."""
    text: str
    to: str
    """State behind it."""


class ReplyFormat(Struct, frozen=True):
    """How a model marks the segments of its replies."""

    begin: str = "answer"
    """State at the end of the prompt."""
    marks: tuple[ReplyMark, ...] = ()
    parser: str = ""
    """What reads its tool calls: the name of a module of `mlx_lm.tool_parsers`, or `json`; empty where nothing does."""


class PromptSegments(Struct, frozen=True):
    """Whose the tokens of a prompt are, and those of the reply that follows it."""

    runs: tuple[SegmentRun, ...] = ()
    """In the order of the text, without markup; none for raw text, and where the template hides where it wrote what."""
    left_out: tuple[LeftOut, ...] = ()
    reply: ReplyFormat = ReplyFormat()


NO_SEGMENTS = PromptSegments()


class CheckToolCall(Command, frozen=True):
    """Parse the last tool call up to a node as mlx_lm's server would; answered by `ToolCallChecked`. An aside."""

    aside: ClassVar[bool] = True
    node: Count
    """The token that ended it, or the last one of the reply."""


class ToolCallChecked(Record, frozen=True):
    """A tool call of a reply, parsed."""

    node: Count
    """Of the command."""
    names: tuple[str, ...]
    """Names of the functions that it calls; none where it can't be parsed."""
    error: str
    """Why it can't be parsed; empty where it can, or where nothing parses it."""
    wrong: Count
    """Node of the token where it went wrong; 0 where nothing did."""
    parser: str
    """What parsed it; empty where nothing parses the calls of this model."""
