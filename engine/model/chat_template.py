"""Chat templates: their values, as in mlx_lm and transformers; filling them within limits; the place of each string of
a conversation in the text; and the marks of thinking and tool calls in replies.

A template is a jinja2 program that comes with the model. It runs in a separate process with limits enforced by the
kernel: an expression such as `'x' * 10**10` is a single C call that no check in this process could interrupt, and
jinja2 evaluates it even while compiling. jinja2's sandbox limits `range` and the reachable attributes, but neither time
nor memory. The process takes 0.15 to 0.2 s of processor time and 20 MB, once per prompt.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import accumulate, groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlx_lm
from msgspec import Struct
from msgspec.structs import replace

from engine.errors import PromptError, first_line
from engine.files import TEXT_LIMIT
from engine.processes import limited
from engine.protocol import (
    ChatOptions,
    LeftOut,
    Message,
    PromptSegments,
    ReplyFormat,
    ReplyMark,
    SegmentKind,
    SegmentRun,
)
from engine.segments import MARKUP, ReplyReader, ReplyToken, kind_of

TAG = "CONTINUE_FINAL_MESSAGE_TAG "
"""Marks the end of a message that is left open; the same as in transformers, so that templates behave the same."""
REASONING = ("reasoning_content", "thinking", "reasoning")
"""Names of the same key; transformers fills the first two from the one that is present."""
ARGUMENTS = (
    "conversation", "messages", "tokenize", "add_generation_prompt", "continue_final_message", "return_dict",
)  # fmt: skip
"""Arguments of the function that fills the template; mlx_lm sets them itself, so they can't be template variables."""


class Filling(Struct, frozen=True):
    """The values that fill a template."""

    conversation: list[dict[str, Any]]
    tools: list[Any] | None
    documents: list[Any] | None
    template: str | None
    """A template given with the request, or the name of one of the model's; None for the model's default."""
    config: dict[str, Any]
    """Further variables of the template."""
    opened: bool
    """True if the last message is left open, for the model to continue it, instead of a new answer."""

    @property
    def last(self) -> str:
        """The content of the last message."""
        return str(self.conversation[-1]["content"])

    def marked(self) -> list[dict[str, Any]]:
        """The conversation, with `TAG` after a message that is left open."""
        *before, last = self.conversation
        return [*before, {**last, "content": self.last + TAG}] if self.opened else self.conversation


def filling(messages: Sequence[Message], options: ChatOptions) -> Filling:
    """Make the values that fill a template.

    Args:
        messages: The conversation.
        options: The other values that the template gets.

    Raises:
        PromptError: The options are not valid JSON of the right kind, or set a variable that the program sets itself.
    """
    if options.response is not None:
        messages = (*messages, Message("assistant", options.response))
    config = _parsed("The template's configuration", options.config, dict) or {}
    tools = _parsed("The list of tools", options.tools, list)
    for name in config:
        if name in ARGUMENTS or (name == "tools" and tools is not None):
            message = f"The template's configuration can't set {name}, which the program sets itself."
            raise PromptError(message, "Leave it out.")
    return Filling(
        conversation=[_values(message) for message in messages],
        tools=config.pop("tools", tools),
        documents=config.pop("documents", None),
        template=config.pop("chat_template", None),
        config=config,
        opened=options.response is not None,
    )


def given_tools(options: ChatOptions) -> list[Any] | None:
    """The tools that a template receives; None for none."""
    try:
        given = filling((), replace(options, response=None))
    except PromptError:  # options of a restored session may be invalid
        return None
    return given.tools


def left_open(text: str | None, content: str) -> str | None:
    """Cut a filled template after its last message, in the same way as transformers.

    Args:
        text: The filled template, with `TAG` after the message's content.
        content: Content of the last message.

    Returns:
        The text up to the end of the message; None if there is no text, or the template doesn't write the message.
    """
    mark = TAG.strip()
    if text is None or content.strip() not in text or mark not in text:
        return None
    end = text.rindex(mark)
    return text[:end] if text.startswith(TAG, end) else text[:end].rstrip()


def _values(message: Message) -> dict[str, Any]:
    """A message as passed to a template: without null values, and with its reasoning under each of its names."""
    more = _parsed("A message", message.more, dict) or {}
    values = {"role": message.role, "content": message.content, **more}
    values = {name: value for name, value in values.items() if value is not None}
    reasoning = next((values[name] for name in REASONING if name in values), None)
    if reasoning is not None:
        values = {"thinking": reasoning, **values, "reasoning_content": reasoning}
    return values


def _parsed(what: str, content: str, kind: type) -> Any:
    """Parse a JSON value of a request; None if it is empty."""
    if not content:
        return None
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise PromptError(f"{what} is not valid JSON: {why}.", "Correct it.") from None
    if not isinstance(value, kind):
        raise PromptError(f"{what} must be a JSON {'object' if kind is dict else 'list'}.", "Correct it.")
    return value


# ---- filling -----------------------------------------------------------------------------------

MEMORY = 512 * 2**20
"""Maximum address space of the process in bytes, of which it uses 40 MB itself; macOS has no such limit."""
SECONDS = 2
"""Maximum processor time in seconds. The templates of models take milliseconds."""
CHARACTERS = 2 * TEXT_LIMIT
"""Maximum number of characters of the result."""
_RAW = "Use it as raw text."


def render(
    template: str, values: Mapping[str, Any], others: Sequence[Mapping[str, Any]] = ()
) -> list[str | None]:
    """Fill a template in the same way as transformers.

    Args:
        template: The jinja2 source.
        values: Its variables, such as `messages`, with values that can be written as JSON.
        others: Sets of values that replace some of `values`: the template is filled with each of them, too, unless that
            takes too long.

    Returns:
        The text, then a text for each of `others`, or None if it wasn't filled.

    Raises:
        PromptError: The template is invalid, rejects the messages, or takes too much time or memory.
    """
    given: dict[str, Any] = {"template": template, "values": dict(values), "others": list(others)}
    given |= {"seconds": SECONDS, "characters": CHARACTERS}
    try:
        answer = limited("engine.model.chat_template_process:fill", given, MEMORY, SECONDS)
    except OSError as error:
        raise PromptError(f"The chat template can't be filled: {error.strerror}.", _RAW) from error
    if "text" not in answer:
        raise refusal(answer.get("error", f"it takes more than {SECONDS} s of processor time"))
    return [str(answer["text"]), *answer["others"]]


def refusal(why: object) -> PromptError:
    """The error for a prompt that a chat template, or the model's own code, rejects."""
    first = first_line(why, nothing="no reason given")
    return PromptError(f"The chat template refuses this prompt: {first}.", _RAW)


# ---- marks in replies: those known to mlx_lm, and those of other families -------------------------
# A request may have its own chat template, so marks are searched in the template's source first and then in the
# vocabulary. The state at the beginning of a reply follows from the text after the last message, where a template may
# open the thinking. mlx_lm's server uses the last mark in the whole prompt instead, even if a user typed it.

THOUGHTS = (
    ("<think>", "</think>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("<longcat_think>", "</longcat_think>"),
    ("<|think:start|>", "<|think:end|>"),
)
"""Marks before and after thinking, as templates write them."""
_OWN_CALLS = (
    ("<seed:tool_call>", "</seed:tool_call>", "qwen3_coder"),
    ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", ""),
    ("<|python_tag|>", "", ""),
    ("<tool_call>", "</tool_call>", "json_tools"),
)
"""Marks around the tool calls of families for which mlx_lm infers no parser, and the name of the parser."""
_HARMONY = "<|channel|>"
_PARSER_FILES = Path(mlx_lm.__file__).with_name("tool_parsers").glob("[a-z]*.py")
PARSERS = tuple(sorted(path.stem for path in _PARSER_FILES))
JSON = "json"
"""Name of the parser for calls that consist only of JSON."""
_STATES = {"normal": "answer", "reasoning": "thinking", "tool": "tool call"}
"""States by mlx_lm's names for them."""


def reply_format(template: str, wrapper: Any, vocabulary: Callable[[], Mapping[str, int]]) -> ReplyFormat:
    """The format of replies to the prompts of a template.

    Args:
        template: Source of the template; empty if code writes the prompts.
        wrapper: mlx_lm's `TokenizerWrapper`, or a `PlainTokenizer`, which has fewer attributes.
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
    transitions = ((at, text, to) for at, edges in own.items() for text, to in edges)
    marks += [ReplyMark(_STATES.get(at, at), text, _STATES.get(to, to)) for at, text, to in transitions]
    return ReplyFormat("answer", tuple(marks), parser)


def _calls(
    template: str, parser: Callable[..., Any] | None, vocabulary: Callable[[], Mapping[str, int]]
) -> tuple[str, str, str]:
    """Marks before and after tool calls, and the name of their parser; empty if there is none."""
    from mlx_lm.tokenizer_utils import _infer_tool_parser

    stand = SimpleNamespace(chat_template=template, get_vocab=vocabulary)
    name = parser.__module__.rpartition(".")[2] if parser is not None else _infer_tool_parser(stand)
    if name in PARSERS:
        module = import_module(f"mlx_lm.tool_parsers.{name}")
        return module.tool_call_start, module.tool_call_end, name
    return next((each for each in _OWN_CALLS if each[0] in template), ("", "", ""))


def _harmony() -> ReplyFormat:
    """The format of gpt-oss: a header with channel and recipient before the text of each message."""
    heads = (
        ("markup", "to=", "tool call:head"), ("markup", "<|channel|>analysis", "markup:analysis"),
        ("markup", "<|message|>", "answer"), ("markup:analysis", "to=", "tool call:head"),
        ("markup:analysis", "<|message|>", "thinking"), ("tool call:head", "<|message|>", "tool call"),
    )  # fmt: skip
    ends = [(state, text, "markup") for state in ("thinking", "answer", "tool call")
            for text in ("<|end|>", "<|call|>", "<|return|>", "<|start|>")]  # fmt: skip
    return ReplyFormat("markup", tuple(ReplyMark(*each) for each in (*heads, *ends)), JSON)


def begun(format: ReplyFormat, tail: str) -> ReplyFormat:
    """A reply format, with the state in which the reply begins.

    Args:
        format: The format of replies.
        tail: The prompt after its last message, not counting a given beginning of the reply.
    """
    reader = ReplyReader(replace(format, begin="answer"))
    return replace(format, begin=reader.advance(reader.begin, ReplyToken(tail)).state)


# ---- parsing of tool calls ---------------------------------------------------------------------


class CallError(Exception):
    """A tool call can't be parsed.

    Args:
        why: The reason, as a sentence without full stop.
        place: Index in the call's text of the first wrong character.
    """

    def __init__(self, why: str, place: int) -> None:
        super().__init__(why)
        self.place = place


def parse_call(parser: str, text: str, tools: list[Any] | None) -> tuple[str, ...]:
    """Parse a tool call in the same way as mlx_lm's server.

    Args:
        parser: One of `PARSERS`, or `JSON`.
        text: Text of the call, without its marks.
        tools: Definitions of the tools; some parsers use the types in them.

    Returns:
        Names of the called functions; empty if the text consists of arguments only.

    Raises:
        CallError: The call can't be parsed.
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
    except Exception as error:  # a parser may raise anything for unexpected text
        fault: BaseException | None = error
        while fault is not None and not isinstance(fault, json.JSONDecodeError):
            fault = fault.__cause__ or fault.__context__
        if isinstance(fault, json.JSONDecodeError) and (begin := text.find(fault.doc)) >= 0:
            raise CallError(fault.msg, begin + fault.pos) from None
        # the parser's message, without the text of the call that it repeats
        why = first_line(error, nothing=type(error).__name__).partition(":")[0].rstrip(".")[:100]
        why = "it is nested too deeply" if isinstance(error, RecursionError) else why
        raise CallError(why, _first_fault(text)) from None


def _first_fault(text: str) -> int:
    """Index of the first character that is not valid JSON; the text's length if all JSON is valid or there is none."""
    begin = next((place for place, sign in enumerate(text) if sign in "{["), -1)
    if begin >= 0:
        try:
            json.JSONDecoder().raw_decode(text, begin)
        except json.JSONDecodeError as error:
            return error.pos
        except RecursionError:
            return begin
    return len(text)


# ---- filled templates -------------------------------------------------------------------------------

Fill = Callable[[Sequence[Filling]], Sequence[str | None]]
"""Fills the template with each of several conversations; all results except the first may be None."""
Placed = dict[int, list[tuple[int, int]]]
"""Begin and end of each occurrence of each part in the text, by the part's number. Empty if the template leaves the
part out, and no entry if that is unknown; a template may write a part twice."""
_PLANES = (0xF0000, 0x100000)
"""First characters of the private use planes: the first plane is used unless the conversation has characters of it."""
_SIZE = 0xFFFE
_MOST = _SIZE // 2
"""Maximum number of strings to mark: the first ones, with messages before tools."""
ALONE = 64
"""Maximum number of strings of messages to mark one by one, from the end, if the marks change a template's text."""
_AROUND = 400
"""Maximum number of characters before the first string of a tool or call in which its JSON object may begin."""
_KINDS: Mapping[str, SegmentKind] = {
    "system": "system", "developer": "system", "assistant": "answer", "model": "answer", "tool": "tool result",
    "function": "tool result", "ipython": "tool result", "observation": "tool result",
}  # fmt: skip
_NAMES = frozenset({"type", "required"})
"""Keys in the definition of a tool with values that templates compare, and which are therefore not marked."""


class ChatText(Struct, frozen=True):
    """A filled chat template, or the end of one."""

    text: str
    spans: tuple[SegmentRun, ...] = ()
    """The strings of the conversation in the order of the text, as ranges of characters without the surrounding white
    space; they don't overlap."""
    left_out: tuple[LeftOut, ...] = ()
    reply: ReplyFormat = ReplyFormat()

    def ending(self, text: str) -> ChatText:
        """Cut to a text at the end of this one; if this one doesn't end with it, only the reply format is kept."""
        before = len(self.text) - len(text)
        if not self.text.endswith(text):
            return ChatText(text, reply=self.reply)
        left = (span for span in self.spans if span.end > before)
        moved = (replace(each, begin=max(0, each.begin - before), end=each.end - before) for each in left)
        return replace(self, text=text, spans=tuple(moved))

    def segments(self, texts: Sequence[str]) -> PromptSegments:
        """The segments as ranges of tokens.

        Args:
            texts: The characters that each token of the text completes.
        """
        return PromptSegments(tuple(_runs(self, texts)), self.left_out, self.reply)


def _runs(of: ChatText, texts: Sequence[str]) -> Iterator[SegmentRun]:
    """Runs of tokens of the same message; a token belongs to the message of its first non-space character."""
    joined = "".join(texts)
    if joined != of.text and joined != f" {of.text}":  # some tokenizers begin with a space
        return
    shift = len(joined) - len(of.text)
    begins = [span.begin for span in of.spans]
    spans: list[SegmentRun | None] = []
    for text, end in zip(texts, accumulate(map(len, texts)), strict=True):
        at = end - len(text.lstrip() or text) - shift
        index = bisect_right(begins, at) - 1
        spans.append(of.spans[index] if index >= 0 and at < of.spans[index].end else None)
    begin = 0
    for owner, group in groupby(spans, key=lambda span: None if span is None else (span.kind, span.message)):
        end = begin + len(list(group))
        if owner is not None:
            yield SegmentRun(owner[0], begin, end, owner[1])
        begin = end


# ---- marks around the strings of a conversation --------------------------------------------------
# Searching the text would be wrong: a message `a` occurs in `<|im_start|>system`, and `You are` in a template's default
# system prompt. Instead the template is filled again with private-use characters around each string. If the text is the
# same apart from them, they show where the strings are, and which strings the template leaves out. If the marks change
# the text, the template is filled with the marks of single messages.


class _Stretch(Struct, frozen=True):
    """A string of a conversation, or a part of one, without the surrounding white space, which a template may strip."""

    kind: SegmentKind
    message: int
    group: int
    """Index of the call in its message, or of the tool; -1 for other strings."""
    text: str


class _Marks:
    """Marks parts of a conversation with two private-use characters each, one before and one after the part.

    Args:
        of: The conversation.
        plane: The first of these characters.
    """

    def __init__(self, of: Filling, plane: int) -> None:
        self._of, self._plane = of, plane
        self._any = _signs(plane)
        self.parts: list[_Stretch] = []
        self._begins: Container[int] = ()
        self._ends: Container[int] = ()
        self.marked()

    def marked(self, begins: Container[int] = (), ends: Container[int] = ()) -> Filling:
        """The conversation with marks before and after the parts with the given numbers."""
        self.parts, self._begins, self._ends = [], begins, ends
        conversation = [self._message(*each) for each in enumerate(self._of.conversation)]
        tools = self._of.tools
        if isinstance(tools, list):
            tools = [self._strings(tool, "tools", -1, place) for place, tool in enumerate(tools)]
        return replace(self._of, conversation=conversation, tools=tools)

    def _message(self, number: int, message: dict[str, Any]) -> dict[str, Any]:
        made = dict(message)
        names = [name for name in REASONING if isinstance(message.get(name), str)]
        if names:
            text = message[names[0]]
            thought = self._part(text, "thinking", number)
            made |= {name: thought for name in names if message[name] == text}
        if isinstance(content := message.get("content"), str):
            kind = _KINDS.get(str(message.get("role")), "user")
            made["content"] = self._content(content, kind, number)
        if isinstance(calls := message.get("tool_calls"), list):
            made["tool_calls"] = [self._call(call, number, place) for place, call in enumerate(calls)]
        return made

    def _content(self, text: str, kind: SegmentKind, number: int) -> str:
        """Mark a message's content; the thinking in an answer is a separate part, since templates may cut it off."""
        for opens, closes in THOUGHTS if kind == "answer" else ():
            if (end := text.rfind(closes)) >= 0:
                first = text.find(opens, 0, end)
                begin, after = first + len(opens) if first >= 0 else 0, end + len(closes)
                thought = self._part(text[begin:end], "thinking", number)
                return text[:begin] + thought + text[end:after] + self._part(text[after:], kind, number)
        return self._part(text, kind, number)

    def _call(self, call: Any, number: int, place: int) -> Any:
        if not isinstance(call, dict):
            return call
        inner = call["function"] if isinstance(call.get("function"), dict) else call
        names = [name for name in ("name", "arguments") if name in inner]
        made = {**inner, **{name: self._strings(inner[name], "tool call", number, place) for name in names}}
        return made if inner is call else {**call, "function": made}

    def _strings(self, value: Any, kind: SegmentKind, number: int, group: int) -> Any:
        """Mark the strings in the JSON of a call or of a tool."""
        if isinstance(value, str):
            return self._part(value, kind, number, group)
        if isinstance(value, dict):
            return {
                key: each if kind == "tools" and key in _NAMES else self._strings(each, kind, number, group)
                for key, each in value.items()
            }
        if isinstance(value, list):
            return [self._strings(each, kind, number, group) for each in value]
        return value

    def _part(self, text: str, kind: SegmentKind, message: int, group: int = -1) -> str:
        inner, number = text.strip(), len(self.parts)
        if not inner or number == _MOST:
            return text
        self.parts.append(_Stretch(kind, message, group, inner))
        begin = chr(self._plane + 2 * number) if number in self._begins else ""
        end = chr(self._plane + 2 * number + 1) if number in self._ends else ""
        return text.replace(inner, f"{begin}{inner}{end}", 1)

    def found(self, text: str, marked: str | None) -> list[tuple[int, bool, int]] | None:
        """The marks in a text: the part's number, True for its end, and the place; None if the rest differs."""
        if marked is None or self._any.sub("", marked) != text:
            return None
        signs = [(ord(match[0]) - self._plane, match.start()) for match in self._any.finditer(marked)]
        return [(sign // 2, bool(sign % 2), place - count) for count, (sign, place) in enumerate(signs)]


def _signs(plane: int) -> re.Pattern[str]:
    return re.compile(f"[{chr(plane)}-{chr(plane + _SIZE - 1)}]")


def chat_text(fill: Fill, of: Filling, reply: ReplyFormat) -> ChatText:
    """Fill a template, and find the strings of the conversation in the text.

    Args:
        fill: Fills the template.
        of: The values of the template.
        reply: The format of replies.
    """
    said = json.dumps([of.conversation, of.tools, of.config], ensure_ascii=False, default=str)
    plane = next((each for each in _PLANES if not _signs(each).search(said)), 0)
    if not plane:
        return ChatText(str(fill([of])[0]), reply=reply)
    marks = _Marks(of, plane)
    every = range(len(marks.parts))
    text, *marked = fill([of, marks.marked(every, every)] if every else [of])
    assert text is not None
    found = marks.found(text, marked[0]) if marked else []
    placed = _one_by_one(fill, of, marks, text) if found is None else _placed(found, every)
    spans, end = _spans(marks.parts, placed, text), _end_of_messages(of, marks.parts, placed, text)
    if of.opened:
        spans = _own_beginning(spans, len(of.conversation) - 1, text, end, reply)
    return ChatText(text, spans, _left_out(marks.parts, placed), begun(reply, text[end:]))


def _own_beginning(
    spans: tuple[SegmentRun, ...], message: int, text: str, end_of_messages: int, reply: ReplyFormat
) -> tuple[SegmentRun, ...]:
    """Split the span of a reply's given beginning at the marks in it, since it may contain thinking."""
    begin = next((span.begin for span in spans if span.message == message), None)
    if begin is None:
        return spans
    made = [span for span in spans if span.message != message]
    for state, first, end in ReplyReader(begun(reply, text[end_of_messages:begin])).split(text[begin:]):
        if (kind := kind_of(state)) != MARKUP:
            made.append(SegmentRun(kind, begin + first, begin + end, message))
    return tuple(made)


def _placed(found: Iterable[tuple[int, bool, int]], numbers: Iterable[int]) -> Placed:
    placed: Placed = {number: [] for number in numbers}
    begun_at: dict[int, int] = {}
    cut: set[int] = set()
    for number, end, place in found:
        if not end:
            begun_at[number] = place
        elif number in begun_at:
            placed[number].append((begun_at.pop(number), place))
        else:
            cut.add(number)
    for number in cut | begun_at.keys():  # only a piece of the part is in the text
        del placed[number]
    return placed


def _one_by_one(fill: Fill, of: Filling, marks: _Marks, text: str) -> Placed:
    """The places of the strings that can be marked, in a group or alone, without changing the rest of the text."""
    messages = [number for number, part in enumerate(marks.parts) if part.message >= 0]
    tools = [number for number, part in enumerate(marks.parts) if part.message < 0]
    last = messages[-ALONE:]
    alone = [marks.marked([number]) for number in last] + [marks.marked((), [number]) for number in last]
    together = [marks.marked(each, each) for each in (set(messages), set(tools))]
    _, *filled = fill([of, *together, *alone])
    of_messages, of_tools, *each = (marks.found(text, marked) for marked in filled)
    placed = {} if of_tools is None else _placed(of_tools, tools)
    if of_messages is not None:
        return placed | _placed(of_messages, messages)
    for number, begins, ends in zip(last, each[: len(last)], each[len(last) :], strict=True):
        content = marks.parts[number].text
        if begins:
            placed[number] = [(at, _end(text, content, at, ends)) for _, _, at in begins]
        elif begins == [] and ends == []:
            placed[number] = []
        elif ends:
            starts = [at - len(content) for _, _, at in ends]
            if all(at >= 0 and text.startswith(content, at) for at in starts):
                placed[number] = [(at, at + len(content)) for at in starts]
    return placed


def _end(text: str, content: str, begin: int, ends: Sequence[tuple[int, bool, int]] | None) -> int:
    """End of a string that begins at `begin`."""
    after = [at for _, _, at in ends or () if at >= begin]
    return after[0] if after else begin + len(content) if text.startswith(content, begin) else begin


# ---- what was found -----------------------------------------------------------------------------


def _spans(parts: Sequence[_Stretch], placed: Placed, text: str) -> tuple[SegmentRun, ...]:
    """The text of each message; a call or tool is one span, including the JSON around its strings."""
    single: list[SegmentRun] = []
    groups: dict[tuple[int, int], list[SegmentRun]] = {}
    for number, places in placed.items():
        part = parts[number]
        spans = [SegmentRun(part.kind, begin, end, part.message) for begin, end in places]
        (single if part.group < 0 else groups.setdefault((part.message, part.group), [])).extend(spans)
    single.sort(key=lambda span: span.begin)
    for spans in filter(None, groups.values()):
        single += _whole(sorted(spans, key=lambda span: span.begin), single, text)
    return tuple(_apart(sorted(single, key=lambda span: (span.begin, span.end))))


def _whole(spans: Sequence[SegmentRun], others: Sequence[SegmentRun], text: str) -> Sequence[SegmentRun]:
    """Join the strings of one call or tool into one span, unless another span is between them."""
    whole = replace(spans[0], end=max(span.end for span in spans))
    if any(whole.begin < other.end and other.begin < whole.end for other in others):
        return spans
    least = max((other.end for other in others if other.end <= whole.begin), default=0)
    most = min((other.begin for other in others if other.begin >= whole.end), default=len(text))
    decoder, at = json.JSONDecoder(), whole.begin
    while (at := text.rfind("{", max(least, spans[0].begin - _AROUND), at)) >= 0:
        try:
            _, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            continue
        if whole.end <= end <= most:
            whole = replace(whole, begin=at, end=end)
    return [whole]


def _apart(spans: Iterable[SegmentRun]) -> Iterator[SegmentRun]:
    """Remove overlaps: each span begins after the one before."""
    end = 0
    for span in spans:
        if span.end > max(end, span.begin):
            yield replace(span, begin=max(end, span.begin))
            end = span.end


def _left_out(parts: Sequence[_Stretch], placed: Placed) -> tuple[LeftOut, ...]:
    """The kinds of text of each message, and of the tools, that are missing in the text."""
    known: dict[tuple[SegmentKind, int], list[list[tuple[int, int]] | None]] = {}
    for number, part in enumerate(parts):
        known.setdefault((part.kind, part.message), []).append(placed.get(number))
    nowhere = ((key, every) for key, every in known.items() if not any(every))
    return tuple(LeftOut(*key, any(places is None for places in every)) for key, every in nowhere)


def _end_of_messages(of: Filling, parts: Sequence[_Stretch], placed: Placed, text: str) -> int:
    """Index in the text after the last message, not counting a given beginning of the reply."""
    last = len(of.conversation) - (2 if of.opened else 1)
    unknown = [
        part.text for number, part in enumerate(parts) if part.message == last and number not in placed
    ]
    if unknown:
        at = text.rfind(unknown[-1])
        return at + len(unknown[-1]) if at >= 0 else len(text)
    ends = (end for number, places in placed.items() if parts[number].message <= last for _, end in places)
    return max(ends, default=0)
