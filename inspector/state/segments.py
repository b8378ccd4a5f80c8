"""Segments of a path: for a prompt as its template wrote it, for a reply by the markup that it generates.

The parser's state after each token of a reply is kept by node, so that a step costs the same in any text and branches
share their common prefix. Later tokens may decide the kind of a token, and they differ between branches: kinds belong
to a path.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from msgspec import Struct, field

from engine import protocol
from engine.protocol import ModelFacts, PromptOpened, Record, Step
from engine.segments import MARKUP, TOOL_CALL, ReplyReader, ReplyState, ReplyToken
from inspector.scales import METRIC
from inspector.state.capability import CapabilityState
from inspector.state.session_tree import Item

WRONG = "✗"
"""Sign before the token at which a tool call becomes invalid, and before the reason."""
LETTERS: Mapping[protocol.SegmentKind, str] = {
    "system": "S", "user": "U", "thinking": "T", "answer": "A", "tool call": "C", "tool result": "R", "tools": "D",
    "markup": "·",
}  # fmt: skip
"""Letter of each kind, in the margin of the text: D as in definitions."""


class PathRun(Struct):
    """Consecutive tokens of a path that have one kind and belong to one message."""

    kind: protocol.SegmentKind | None
    """Kind of the tokens; None if it is not known, as in raw text."""
    message: int
    """Index of the message; a reply comes after the messages of its prompt. -1 for tool definitions and markup."""
    begin: int
    """Slot of the first token."""
    end: int
    """Slot after the last token."""
    word: int
    """Slot of the first token that isn't white space; `end` if all are."""

    @property
    def told(self) -> bool:
        """True if it gets a line: not for markup and white space."""
        return self.kind is not None and self.kind != MARKUP and self.word < self.end


class Figures(NamedTuple):
    """Figures of some tokens together."""

    tokens: int = 0
    ms: float = 0.0
    """Milliseconds of the steps among them."""
    steps: int = 0
    surprisal: float = 0.0
    """Bits of the tokens whose surprisal is known."""
    known: int = 0
    """Number of tokens whose surprisal is known."""

    @property
    def bits(self) -> float | None:
        """Mean surprisal; None if none is known."""
        return self.surprisal / self.known if self.known else None

    def plus(self, other: Figures, sign: int = 1) -> Figures:
        """The sum with other figures, or with sign -1 the difference."""
        return Figures._make(one + sign * more for one, more in zip(self, other, strict=True))


NOTHING = Figures()


class PathSegments(Struct):
    """The kinds of the tokens of one path, and its runs."""

    items: Sequence[Item]
    """The path; it may have grown since."""
    kinds: list[protocol.SegmentKind | None] = field(default_factory=list)
    """Kinds by slot."""
    messages: list[int] = field(default_factory=list)
    runs: list[PathRun] = field(default_factory=list)
    provisional: int = 0
    """Number of tokens at the end whose kinds the next ones may change."""
    several: bool = False
    """True if more than one run gets a line."""
    calling: bool = False
    """True if a run is, or was at some time, a tool call."""
    over: bool = False
    """True if the reply at its end has ended."""
    _blank: list[bool] = field(default_factory=list)
    """True if the token of a slot is white space, by slot."""
    sums: list[Figures] = field(default_factory=lambda: [NOTHING])
    """Figures of all tokens before each slot, as far as they were computed."""

    @property
    def told(self) -> list[PathRun]:
        """The runs that get a line."""
        return [run for run in self.runs if run.told]

    def at(self, slot: int) -> PathRun | None:
        """The run that a slot is in; None past the end."""
        place = bisect_right(self.runs, slot, key=lambda run: run.end)
        return self.runs[place] if place < len(self.runs) else None

    def figures(self, runs: Iterable[PathRun]) -> Figures:
        """Figures of the tokens of some runs together."""
        for item in self.items[len(self.sums) - 1 : len(self.kinds)]:
            surprisal = METRIC["surprisal"].value(item)
            ms, steps = (item.ms.total, 1) if isinstance(item, Step) else (0.0, 0)
            one = Figures(1, ms, steps, surprisal or 0.0, int(surprisal is not None))
            self.sums.append(self.sums[-1].plus(one))
        total = NOTHING
        for run in runs:
            total = total.plus(self.sums[run.end]).plus(self.sums[run.begin], -1)
        return total

    @property
    def totals(self) -> dict[protocol.SegmentKind, Figures]:
        """The figures of all tokens of each kind, in the order in which the kinds appear."""
        by_kind: dict[protocol.SegmentKind, list[PathRun]] = {}
        for run in self.runs:
            if run.kind is not None:
                by_kind.setdefault(run.kind, []).append(run)
        return {kind: self.figures(runs) for kind, runs in by_kind.items()}

    def add(self, kind: protocol.SegmentKind | None, message: int, item: Item, at: ReplyState | None) -> None:
        """Append the next token; it may change the kinds of earlier ones."""
        slot = first = len(self.kinds)
        self._blank.append(bool(item.text) and not item.text.strip())
        self.kinds.append(kind)
        self.messages.append(message)
        self.provisional = 0
        if at is not None:
            self.provisional = at.provisional
            for back, decided in at.settled:
                place = slot - back
                if 0 <= place < slot and self.kinds[place] != decided:
                    self.kinds[place], first = decided, min(first, place)
        last, own = self.runs[-1] if self.runs else None, -1 if kind in (None, MARKUP) else message
        if first == slot and last and (last.kind, last.message) == (kind, own) and last.word < last.end:
            last.end += 1  # the usual case
            return
        while self.runs and self.runs[-1].begin >= first:
            self.runs.pop()
        if self.runs and self.runs[-1].end > first:
            last = self.runs[-1]
            last.end, last.word = first, min(last.word, first)
        for slot in range(first, len(self.kinds)):
            kind = self.kinds[slot]
            message = -1 if kind in (None, MARKUP) else self.messages[slot]
            if not self.runs or (self.runs[-1].kind, self.runs[-1].message) != (kind, message):
                self.runs.append(PathRun(kind, message, slot, slot, slot))
                self.calling |= kind == TOOL_CALL
            run, blank = self.runs[-1], self._blank[slot]
            run.end, run.word = slot + 1, run.word + (run.word == slot and blank)
        self.several = len(list(islice((run for run in self.runs if run.told), 2))) > 1


@lru_cache(maxsize=64)
def _begin(format: protocol.ReplyFormat, message: int) -> tuple[ReplyReader, ReplyState, int]:
    """The reader of a reply, its state before the first token, and the reply's message."""
    reader = ReplyReader(format)
    return reader, reader.begin, message


class Segments(CapabilityState):
    """The segments of all tokens, built from the records."""

    def __init__(self) -> None:
        self._eos: frozenset[int] = frozenset()
        self._forget()

    def _forget(self) -> None:
        """Start with a new tree, which uses the same node numbers."""
        self.checked: dict[int, protocol.ToolCallChecked] = {}
        """Results of checking tool calls, by the last node of the call."""
        self.folded: set[int] = set()
        """First nodes of the runs that are folded in the text."""
        self._prompts: dict[int, PromptOpened] = {}
        """Prompts by their last nodes."""
        self._in_prompt: dict[int, tuple[protocol.SegmentKind | None, int]] = {}
        """Kind and message of a prompt's token, by node; of several prompts with the token the latest counts."""
        self._at: dict[int, tuple[ReplyReader, ReplyState, int]] = {}
        """Reader and state of the reply after a node, and the reply's message."""
        self._path = PathSegments(())
        self._readings = -1

    def __deepcopy__(self, memo: object) -> Segments:
        """An independent state; the values in its tables never change."""
        made = copy(self)
        made.checked, made._at, made._in_prompt = dict(self.checked), dict(self._at), dict(self._in_prompt)
        made._prompts, made._path, made.folded = dict(self._prompts), PathSegments(()), set(self.folded)
        return made

    # ---- records ----------------------------------------------------------------------------

    def apply(self, record: Record) -> None:
        match record:
            case ModelFacts():
                self._eos = frozenset(record.eos_ids)
            case PromptOpened(tokens=tokens, segments=segments):
                if record.new_tree:
                    self._forget()
                for token, label in zip(tokens, labels(segments, len(tokens)), strict=True):
                    self._in_prompt[token.node] = label
                if tokens:
                    self._prompts[tokens[-1].node] = record
                    self._at[tokens[-1].node] = _begin(segments.reply, len(record.messages))
            case Step():
                if (standing := self._at.get(record.parent)) is None:  # inserted into a prompt
                    kind, message = self._in_prompt.get(record.parent, (None, 0))
                    known = kind if kind in ("thinking", TOOL_CALL) else "answer"
                    standing = _begin(protocol.ReplyFormat(known), message)
                reader, before, message = standing
                put = ReplyToken(record.text, record.special, record.id in self._eos)
                after = reader.advance(before, put)
                # tokens with the same state share one object: one for each would cost 200 bytes a step
                self._at[record.node] = standing if after == before else (reader, after, message)
            case protocol.ToolCallChecked():
                self.checked[record.node] = record

    # ---- queries ----------------------------------------------------------------------------

    @property
    def wrong(self) -> dict[int, str]:
        """Errors of tool calls, by the node of the token at which the call becomes invalid."""
        return {each.wrong: each.error for each in self.checked.values() if each.error and each.wrong}

    def state(self, node: int) -> ReplyState | None:
        """State of a reply after one of its tokens; None inside a prompt."""
        found = self._at.get(node)
        return found[1] if found is not None else None

    def path(self, items: Sequence[Item], readings: int, over: bool) -> PathSegments:
        """The segments of the path on show, updated one token at a time.

        Args:
            items: The path; while it is the same list, only new tokens are added.
            readings: Changes when known tokens have new readings.
            over: Whether the reply at its end has ended.
        """
        if self._path.items is not items:
            self._path = self.read(items)
        for item in items[len(self._path.kinds) :]:
            self._append(self._path, item)
        if self._readings != readings:
            self._readings = readings
            self._path.sums = [NOTHING]
        self._path.over = over
        if over:
            self._path.provisional = 0
        return self._path

    def read(self, items: Sequence[Item]) -> PathSegments:
        """The segments of any path that starts at the first token."""
        made = PathSegments(items)
        told: dict[int, tuple[protocol.SegmentKind | None, int]] = {}
        for slot, item in enumerate(items):
            if (opened := self._prompts.get(item.node)) is not None:
                tokens = len(opened.tokens)
                found = labels(opened.segments, tokens)
                told |= {slot + 1 - tokens + place: label for place, label in enumerate(found)}
        for slot, item in enumerate(items):
            if (label := told.get(slot)) is not None:
                made.add(*label, item, None)
            else:
                self._append(made, item)
        return made

    def _append(self, path: PathSegments, item: Item) -> None:
        if isinstance(item, Step) and (found := self._at.get(item.node)) is not None:
            path.add(found[1].kind, found[2], item, found[1])
        else:
            path.add(*self._in_prompt.get(item.node, (None, -1)), item, None)

    def folds(self, path: PathSegments) -> list[PathRun]:
        """The runs of a path that are folded."""
        folded = self.folded
        return [run for run in path.runs if path.items[run.begin].node in folded] if folded else []

    def calls(self, path: PathSegments) -> Iterator[tuple[PathRun, int]]:
        """The complete tool calls in the replies of a path, each with the node to request its check at."""
        for run in path.runs:
            ended = run.end < len(path.kinds) - path.provisional or path.over
            last = path.items[run.end - 1]
            at = self.state(last.node) if run.kind == TOOL_CALL and isinstance(last, Step) else None
            if (
                ended and at is not None and ":" not in at.state
            ):  # with ":", only the head of a call has been read
                yield run, last.node


def labels(segments: protocol.PromptSegments, tokens: int) -> list[tuple[protocol.SegmentKind | None, int]]:
    """Kind and message of each token of a prompt, from its runs.

    Tokens outside all runs are markup; without any runs the kind is None.

    Args:
        segments: Segments of the prompt; those of a file may be invalid.
        tokens: Number of tokens of the prompt.
    """
    made: list[tuple[protocol.SegmentKind | None, int]] = [(MARKUP if segments.runs else None, -1)] * tokens
    for run in segments.runs:
        begin, end = max(0, run.begin), min(tokens, run.end)
        made[begin:end] = [(run.kind, run.message)] * max(0, end - begin)
    return made


def left_out_words(left_out: protocol.LeftOut) -> str:
    """A sentence on what a template left out."""
    of = f" of message {left_out.message + 1}" if left_out.message >= 0 else ""
    if left_out.written:
        return f"Where the template wrote {left_out.kind}{of} isn't known; it counts as markup"
    return f"The template left out {left_out.kind}{of}"
