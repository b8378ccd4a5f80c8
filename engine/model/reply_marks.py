"""The marks of thinking and tool calls in a model's replies: those that mlx_lm knows, and those of other families.

A chat template of the request's own says it for that request, so that the marks are found in the template's source
before they are found in the vocabulary. What begins a reply is read off the text behind the last message: a template
may open the thinking there. mlx_lm's server looks for the last mark in the whole prompt instead, and takes one that a
user wrote for the model's own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlx_lm
from msgspec.structs import replace

from engine.errors import first_line
from engine.protocol import ReplyFormat, ReplyMark
from engine.segments import ReplyReader

THOUGHTS = (
    ("<think>", "</think>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("<longcat_think>", "</longcat_think>"),
    ("<|think:start|>", "<|think:end|>"),
)
"""Begin and end of a thinking, as templates write them."""
_OWN_CALLS = (
    ("<seed:tool_call>", "</seed:tool_call>", "qwen3_coder"),
    ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", ""),
    ("<|python_tag|>", "", ""),
    ("<tool_call>", "</tool_call>", "json_tools"),
)
"""Begin and end of tool calls of families for which mlx_lm names no parser, and the name of their parser."""
_HARMONY = "<|channel|>"
PARSERS = tuple(
    sorted(path.stem for path in Path(mlx_lm.__file__).with_name("tool_parsers").glob("[a-z]*.py"))
)
"""Names of mlx_lm's parsers."""
JSON = "json"
"""Name of the parser of calls that are JSON alone."""
_STATES = {"normal": "answer", "reasoning": "thinking", "tool": "tool call"}
"""States by mlx_lm's names."""


def reply_format(template: str, wrapper: Any, vocabulary: Callable[[], Mapping[str, int]]) -> ReplyFormat:
    """The marks of replies to prompts that a template fills.

    Args:
        template: Its source; empty for code instead.
        wrapper: mlx_lm's `TokenizerWrapper`, or a `PlainTokenizer`, which has less.
        vocabulary: Returns the ids of all tokens by their pieces.
    """
    if _HARMONY in template:
        return _harmony()
    own = getattr(wrapper, "response_transitions", None) or {}
    thinking = getattr(wrapper, "think_start", None), getattr(wrapper, "think_end", None)
    opens, closes = next((pair for pair in THOUGHTS if pair[1] in template or pair[0] in template), thinking)
    begin, end, parser = _calls(template, getattr(wrapper, "tool_parser", None), vocabulary)
    marks = [ReplyMark("answer", opens, "thinking")] if opens else []
    marks += [ReplyMark("thinking", closes, "answer")] if closes else []
    if begin:
        if not any(to == "tool" for edges in own.values() for _, to in edges):
            marks.append(ReplyMark("answer", begin, "tool call"))
        marks += [ReplyMark("thinking", begin, "tool call")] if opens else []
        marks += [ReplyMark("tool call", end, "answer")] if end else []
    marks += [ReplyMark("answer", mark, "answer") for mark in getattr(wrapper, "structural_markers", ())]
    marks += [
        ReplyMark(_STATES.get(at, at), text, _STATES.get(to, to))
        for at, edges in own.items()
        for text, to in edges
    ]
    return ReplyFormat("answer", tuple(marks), parser)


def _calls(
    template: str, parser: Callable[..., Any] | None, vocabulary: Callable[[], Mapping[str, int]]
) -> tuple[str, str, str]:
    """Begin and end of tool calls, and the name of their parser; empty if there is none."""
    from mlx_lm.tokenizer_utils import _infer_tool_parser

    stand = SimpleNamespace(chat_template=template, get_vocab=vocabulary)
    name = parser.__module__.rpartition(".")[2] if parser is not None else _infer_tool_parser(stand)
    if name in PARSERS:
        module = import_module(f"mlx_lm.tool_parsers.{name}")
        return module.tool_call_start, module.tool_call_end, name
    return next((each for each in _OWN_CALLS if each[0] in template), ("", "", ""))


def _harmony() -> ReplyFormat:
    """The format of gpt-oss: a header names channel and recipient of each message, whose text follows it."""
    heads = (
        ("markup", "to=", "tool call:head"), ("markup", "<|channel|>analysis", "markup:analysis"),
        ("markup", "<|message|>", "answer"), ("markup:analysis", "to=", "tool call:head"),
        ("markup:analysis", "<|message|>", "thinking"), ("tool call:head", "<|message|>", "tool call"),
    )  # fmt: skip
    ends = [(state, text, "markup") for state in ("thinking", "answer", "tool call")
            for text in ("<|end|>", "<|call|>", "<|return|>", "<|start|>")]  # fmt: skip
    return ReplyFormat("markup", tuple(ReplyMark(*each) for each in (*heads, *ends)), JSON)


def begun(format: ReplyFormat, tail: str) -> ReplyFormat:
    """A format with the state in which a reply begins.

    Args:
        format: The replies' format.
        tail: The end of the prompt, from behind the last message that is not the reply's own beginning.
    """
    return replace(format, begin=ReplyReader(replace(format, begin="answer")).state_after(tail))


# ---- parsing ------------------------------------------------------------------------------------


class CallError(Exception):
    """A tool call can't be parsed.

    Args:
        why: A sentence without its end.
        place: Of the character of the call's text where it went wrong.
    """

    def __init__(self, why: str, place: int) -> None:
        super().__init__(why)
        self.place = place


def parse_call(parser: str, text: str, tools: list[Any] | None) -> tuple[str, ...]:
    """Parse a tool call as mlx_lm's server would.

    Args:
        parser: One of `PARSERS`, or `JSON`.
        text: Of the call, without its marks.
        tools: Definitions of the tools, whose types some parsers heed.

    Returns:
        Names of the functions that it calls; none if the text has arguments alone.

    Raises:
        CallError: It can't be parsed.
    """
    if parser == JSON:
        if not isinstance(_attempt(json.loads, text, text), dict):
            raise CallError("its arguments are not a JSON object", _first_fault(text))
        return ()
    parse = import_module(f"mlx_lm.tool_parsers.{parser}").parse_tool_call
    found = _attempt(parse, text, text, tools)
    calls = found if isinstance(found, list) else [found]
    for call in calls:
        arguments = call.get("arguments") if isinstance(call, dict) else None
        if not isinstance(call, dict) or not isinstance(call.get("name"), str):
            raise CallError("it names no function", _first_fault(text))
        if not isinstance(arguments, dict) or (parser == "glm47" and [*arguments] == ["raw"]):
            raise CallError(f"the arguments of {call['name'][:60]} are not an object", _first_fault(text))
    return tuple(str(call["name"]) for call in calls)


def _attempt(parse: Callable[..., Any], text: str, *given: Any) -> Any:
    try:
        return parse(*given)
    except Exception as error:  # a parser may raise anything at a text that it was not made for
        fault: BaseException | None = error
        while fault is not None and not isinstance(fault, json.JSONDecodeError):
            fault = fault.__cause__ or fault.__context__
        if isinstance(fault, json.JSONDecodeError) and (begin := text.find(fault.doc)) >= 0:
            raise CallError(fault.msg, begin + fault.pos) from None
        # what a parser says, without the text that it repeats
        why = first_line(error, nothing=type(error).__name__).partition(":")[0].rstrip(".")[:100]
        why = "it is nested too deeply" if isinstance(error, RecursionError) else why
        raise CallError(why, _first_fault(text)) from None


def _first_fault(text: str) -> int:
    """The place of the first character that is no JSON any more; the end, where what is there is right so far."""
    begin = next((place for place, sign in enumerate(text) if sign in "{["), -1)
    if begin >= 0:
        try:
            json.JSONDecoder().raw_decode(text, begin)
        except json.JSONDecodeError as error:
            return error.pos
        except RecursionError:
            return begin
    return len(text)
