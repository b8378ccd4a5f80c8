"""Whose the text of a filled chat template is: the place of each string of a conversation and of its tools.

Its text is not searched: a message `a` is found in `<|im_start|>system`, and `You are` in a system prompt of the
template's own. The template is filled again with characters around each string that no template and no text uses;
where it is the same text without them, they are where the strings are. What a template leaves out is known from that,
too. Where a template takes notice of the marks, it is filled with those of single messages.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from itertools import accumulate, islice
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from engine.model.chat_template import REASONING, Filling
from engine.model.reply_marks import THOUGHTS, begun
from engine.protocol import LeftOut, PromptSegments, ReplyFormat, SegmentKind, SegmentRun
from engine.segments import MARKUP, ReplyReader, kind_of

Fill = Callable[[Sequence[Filling]], Sequence[str | None]]
"""The template filled with each of some conversations; only the first is sure to be filled."""
_PLANES = (0xF0000, 0x100000)
"""Where planes of private use begin: the first is taken unless the conversation has characters of it."""
_SIZE = 0xFFFE
_MOST = _SIZE // 2
"""Strings that are marked: the first ones, messages before tools."""
ALONE = 64
"""Strings of messages that are looked for one by one, the last ones, where a template takes notice of the marks."""
_AROUND = 400
"""Characters before a tool or a call among which the JSON object may begin that has all of it."""
_KINDS: Mapping[str, SegmentKind] = {
    "system": "system", "developer": "system", "assistant": "answer", "model": "answer", "tool": "tool result",
    "function": "tool result", "ipython": "tool result", "observation": "tool result",
}  # fmt: skip
_NAMES = frozenset({"type", "required"})
"""Keys in the definition of a tool whose words templates compare."""
Path = tuple[str | int, ...]


class FieldSpan(Struct, frozen=True):
    """A string of a conversation in the text of a filled template."""

    kind: SegmentKind
    message: int
    """From 0; -1 for definitions of tools."""
    begin: int
    """Its first character that is no space, as a place in the text."""
    end: int


class ChatText(Struct, frozen=True):
    """A filled chat template, or the end of one."""

    text: str
    spans: tuple[FieldSpan, ...] = ()
    """In the order of the text; they don't overlap."""
    left_out: tuple[LeftOut, ...] = ()
    reply: ReplyFormat = ReplyFormat()

    def ending(self, text: str) -> ChatText:
        """The same of a text that it ends with; nothing is known of one that it doesn't."""
        before = len(self.text) - len(text)
        if not self.text.endswith(text):
            return ChatText(text, reply=self.reply)
        moved = (
            replace(span, begin=max(0, span.begin - before), end=span.end - before)
            for span in self.spans
            if span.end > before
        )
        return replace(self, text=text, spans=tuple(moved))

    def segments(self, texts: Sequence[str]) -> PromptSegments:
        """The same by tokens.

        Args:
            texts: The characters that each token of the text finishes.
        """
        return PromptSegments(tuple(_runs(self, texts)), self.left_out, self.reply)


def _runs(of: ChatText, texts: Sequence[str]) -> Iterator[SegmentRun]:
    """A token is whose its first character is that is no space."""
    joined = "".join(texts)
    if joined != of.text and joined != f" {of.text}":  # some tokenizers begin with a space
        return
    shift = len(joined) - len(of.text)
    begins = [span.begin for span in of.spans]
    run: SegmentRun | None = None
    for place, (text, end) in enumerate(zip(texts, accumulate(map(len, texts)), strict=True)):
        at = end - len(text.lstrip() or text) - shift
        index = bisect_right(begins, at) - 1
        span = of.spans[index] if index >= 0 and at < of.spans[index].end else None
        if run is not None and (span is None or (span.kind, span.message) != (run.kind, run.message)):
            yield run
            run = None
        if span is not None:
            begin = run.begin if run is not None else place
            run = SegmentRun(span.kind, begin, place + 1, span.message)
    if run is not None:
        yield run


# ---- the strings of a conversation --------------------------------------------------------------


class _FieldPart(Struct, frozen=True):
    """A string, or a part of one, inside the white space that a template may cut off."""

    kind: SegmentKind
    message: int
    group: Path
    """Those of one call, or of one tool, have the same."""
    paths: tuple[Path, ...]
    """Where it stands in the conversation or the tools: reasoning stands there under several names."""
    begin: int
    end: int


def _parts(of: Filling) -> Iterator[_FieldPart]:
    for number, message in enumerate(of.conversation):
        kind = _KINDS.get(str(message.get("role")), "user")
        at: Path = ("conversation", number)
        yield from _reasoning(message, number)
        if isinstance(content := message.get("content"), str):
            yield from _content(content, kind, number, (*at, "content"))
        for place, call in enumerate(_listed(message.get("tool_calls"))):
            group = (*at, "tool_calls", place)
            inner = "function" if isinstance(call, dict) and isinstance(call.get("function"), dict) else None
            for key in ("name", "arguments"):
                path = (*group, inner, key) if inner else (*group, key)
                yield from _strings(_value(of, path), "tool call", number, group, path)
    for place, tool in enumerate(_listed(of.tools)):
        group = ("tools", place)
        yield from _strings(tool, "tools", -1, group, group)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _reasoning(message: Mapping[str, Any], number: int) -> Iterator[_FieldPart]:
    text = next((message[name] for name in REASONING if isinstance(message.get(name), str)), "")
    names = [name for name in REASONING if message.get(name) == text]
    paths = tuple(("conversation", number, name) for name in names)
    if text.strip():
        yield _part(text, "thinking", number, paths[0], paths, 0, len(text))


def _content(text: str, kind: SegmentKind, number: int, path: Path) -> Iterator[_FieldPart]:
    """A message; an answer has its thinking in it where that is marked, and templates cut it off."""
    begin = 0
    for opens, closes in THOUGHTS if kind == "answer" else ():
        if (at := text.rfind(closes)) >= 0:
            first = text.find(opens, 0, at)
            within = first + len(opens) if first >= 0 else 0
            if text[within:at].strip():
                yield _part(text, "thinking", number, (*path, "thinking"), (path,), within, at)
            begin = at + len(closes)
            break
    if text[begin:].strip():
        yield _part(text, kind, number, path, (path,), begin, len(text))


def _strings(value: Any, kind: SegmentKind, number: int, group: Path, path: Path) -> Iterator[_FieldPart]:
    """The strings in the JSON of a call or of a tool."""
    if isinstance(value, str) and value.strip():
        yield _part(value, kind, number, group, (path,), 0, len(value))
    elif isinstance(value, dict):
        for key, each in value.items():
            if kind != "tools" or key not in _NAMES:
                yield from _strings(each, kind, number, group, (*path, key))
    elif isinstance(value, list):
        for place, each in enumerate(value):
            yield from _strings(each, kind, number, group, (*path, place))


def _part(
    text: str, kind: SegmentKind, number: int, group: Path, paths: tuple[Path, ...], begin: int, end: int
) -> _FieldPart:
    inner = text[begin:end]
    first = begin + len(inner) - len(inner.lstrip())
    return _FieldPart(kind, number, group, paths, first, max(first, begin + len(inner.rstrip())))


def _value(of: Filling, path: Path) -> Any:
    value: Any = of.conversation if path[0] == "conversation" else of.tools
    for key in path[1:]:
        try:
            value = value[key]
        except (LookupError, TypeError):
            return None
    return value


# ---- marks --------------------------------------------------------------------------------------


class _Marks:
    """Marks characters of a plane of private use around parts of a conversation.

    Args:
        of: The conversation.
        plane: The first of these characters.
    """

    def __init__(self, of: Filling, plane: int) -> None:
        self._of, self._plane = of, plane
        self._any = re.compile(f"[{chr(plane)}-{chr(plane + _SIZE - 1)}]")
        self.parts = list(islice(_parts(of), _MOST))

    def marked(self, numbers: Iterable[int], begins: bool = True, ends: bool = True) -> Filling:
        """The conversation with marks around some of its parts."""
        cuts: dict[Path, list[tuple[int, str]]] = {}
        for number in numbers:
            part, sign = self.parts[number], self._plane + 2 * number
            for path in part.paths:
                cuts.setdefault(path, []).extend(
                    [(part.begin, chr(sign))] * begins + [(part.end, chr(sign + 1))] * ends
                )
        made = replace(self._of, conversation=deepcopy(self._of.conversation), tools=deepcopy(self._of.tools))
        for path, signs in cuts.items():
            text, begin, pieces = _value(made, path), 0, []
            for place, sign_ in sorted(signs, key=lambda cut: cut[0]):
                pieces += [text[begin:place], sign_]
                begin = place
            _value(made, path[:-1])[path[-1]] = "".join((*pieces, text[begin:]))
        return made

    def found(self, text: str, marked: str | None) -> list[tuple[int, bool, int]] | None:
        """The marks in a text: number, whether it is that of an end, and place; None where the text is another one."""
        if marked is None or self._any.sub("", marked) != text:
            return None
        return [
            (*self._named(match[0]), match.start() - count)
            for count, match in enumerate(self._any.finditer(marked))
        ]

    def _named(self, sign: str) -> tuple[int, bool]:
        number, end = divmod(ord(sign) - self._plane, 2)
        return number, bool(end)

    def content(self, number: int) -> str:
        """The text of a part."""
        part = self.parts[number]
        return str(_value(self._of, part.paths[0]))[part.begin : part.end]


Placed = dict[int, list[tuple[int, int]]]
"""Where each part is in the text, by its number: none where the template leaves it out, and no entry where that isn't
known. A template may write one twice."""


def chat_text(fill: Fill, of: Filling, reply: ReplyFormat) -> ChatText:
    """Fill a template, and find what is in the text.

    Args:
        fill: Fills it.
        of: What it is filled with.
        reply: How replies are marked.
    """
    said = json.dumps([of.conversation, of.tools, of.config], ensure_ascii=False, default=str)
    plane = next(
        (each for each in _PLANES if not re.search(f"[{chr(each)}-{chr(each + _SIZE - 1)}]", said)), 0
    )
    if not plane:
        return ChatText(_first(fill([of])), reply=reply)
    marks = _Marks(of, plane)
    every = range(len(marks.parts))
    if not every:
        text, placed = _first(fill([of])), {}
    else:
        first, marked = fill([of, marks.marked(every)])
        text, found = _first([first]), marks.found(_first([first]), marked)
        placed = _one_by_one(fill, of, marks, text) if found is None else _placed(found, every)
    spans, behind = _spans(marks.parts, placed, text), _behind(of, marks, placed, text)
    if of.opened:
        spans = _own_beginning(spans, len(of.conversation) - 1, text, behind, reply)
    return ChatText(text, spans, _left_out(marks.parts, placed), begun(reply, text[behind:]))


def _own_beginning(
    spans: tuple[FieldSpan, ...], message: int, text: str, behind: int, reply: ReplyFormat
) -> tuple[FieldSpan, ...]:
    """The spans with those of a reply's given beginning as the marks in it say: a thinking may be open."""
    begin = next((span.begin for span in spans if span.message == message), None)
    if begin is None:
        return spans
    made = [span for span in spans if span.message != message]
    for state, first, end in ReplyReader(begun(reply, text[behind:begin])).split(text[begin:]):
        if (kind := kind_of(state)) != MARKUP:
            made.append(FieldSpan(kind, message, begin + first, begin + end))
    return tuple(made)


def _first(texts: Sequence[str | None]) -> str:
    assert texts[0] is not None
    return texts[0]


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
    for number in cut | begun_at.keys():  # a part of it is written
        del placed[number]
    return placed


def _one_by_one(fill: Fill, of: Filling, marks: _Marks, text: str) -> Placed:
    """The places of those strings whose marks a template takes no notice of."""
    messages = [number for number, part in enumerate(marks.parts) if part.message >= 0]
    tools = [number for number, part in enumerate(marks.parts) if part.message < 0]
    last = messages[-ALONE:]
    _, of_messages, of_tools, *alone = fill(
        [
            of,
            marks.marked(messages),
            marks.marked(tools),
            *(marks.marked([number], ends=False) for number in last),
            *(marks.marked([number], begins=False) for number in last),
        ]
    )
    found = marks.found(text, of_tools)
    placed = {} if found is None else _placed(found, tools)
    if (found := marks.found(text, of_messages)) is not None:
        return placed | _placed(found, messages)
    for number, first, second in zip(last, alone[: len(last)], alone[len(last) :], strict=True):
        begins, ends = marks.found(text, first), marks.found(text, second)
        content = marks.content(number)
        if begins == [] and ends == []:
            placed[number] = []
        elif begins:
            placed[number] = [(at, _end(text, content, at, ends)) for _, _, at in begins]
        elif ends:
            starts = [at - len(content) for _, _, at in ends]
            if all(at >= 0 and text.startswith(content, at) for at in starts):
                placed[number] = [(at, at + len(content)) for at in starts]
    return placed


def _end(text: str, content: str, begin: int, ends: Sequence[tuple[int, bool, int]] | None) -> int:
    """The end of a string that begins at a place."""
    behind = [at for _, _, at in ends or () if at >= begin]
    return behind[0] if behind else begin + len(content) if text.startswith(content, begin) else begin


# ---- what was found -----------------------------------------------------------------------------


def _spans(parts: Sequence[_FieldPart], placed: Placed, text: str) -> tuple[FieldSpan, ...]:
    """Where whose text is: calls and tools as wholes, with the JSON around their strings."""
    single: list[FieldSpan] = []
    groups: dict[Path, list[FieldSpan]] = {}
    for number, places in placed.items():
        part = parts[number]
        for begin, end in places:
            span = FieldSpan(part.kind, part.message, begin, end)
            groups.setdefault(part.group, []).append(span)
            if part.kind not in ("tool call", "tools"):
                single.append(span)
    single.sort(key=lambda span: span.begin)
    for spans in groups.values():
        if spans[0].kind in ("tool call", "tools"):
            single += _whole(sorted(spans, key=lambda span: span.begin), single, text)
    return tuple(_apart(sorted(single, key=lambda span: (span.begin, span.end))))


def _whole(spans: Sequence[FieldSpan], others: Sequence[FieldSpan], text: str) -> Sequence[FieldSpan]:
    """The strings of one call or tool as one, unless there is something of others between them."""
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


def _apart(spans: Iterable[FieldSpan]) -> Iterator[FieldSpan]:
    """Spans without what the one before has already."""
    end = 0
    for span in spans:
        if span.end > max(end, span.begin):
            yield replace(span, begin=max(end, span.begin))
            end = span.end


def _left_out(parts: Sequence[_FieldPart], placed: Placed) -> tuple[LeftOut, ...]:
    """What of a message, or of the tools, stands nowhere."""
    known: dict[tuple[SegmentKind, int], list[list[tuple[int, int]] | None]] = {}
    for number, part in enumerate(parts):
        if part.end > part.begin:
            known.setdefault((part.kind, part.message), []).append(placed.get(number))
    return tuple(
        LeftOut(kind, message, any(places is None for places in every))
        for (kind, message), every in known.items()
        if not any(every)
    )


def _behind(of: Filling, marks: _Marks, placed: Placed, text: str) -> int:
    """Where the text begins that is behind the last message, but for a reply's own beginning."""
    last = len(of.conversation) - (2 if of.opened else 1)
    own = [number for number, part in enumerate(marks.parts) if part.message <= last]
    if unknown := [number for number in own if marks.parts[number].message == last and number not in placed]:
        content = marks.content(unknown[-1])
        return max(0, text.rfind(content)) + len(content) if content in text else len(text)
    return max((end for number in own for _, end in placed.get(number, ())), default=0)
