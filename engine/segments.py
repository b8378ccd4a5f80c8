"""The segments of a reply, told while it comes: a text automaton over the marks of a `ReplyFormat`.

The marks are looked for in the text, as mlx_lm's server does, so that one that the model spells out in several tokens
counts, too. A token's kind is that of its first character that is no space. While the last characters may be the
beginning of a mark, the kinds of their tokens are provisional. Standard library alone: the engine stops runs by it, and
the screen labels tokens by it, live or recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, get_args

from engine.protocol import ReplyFormat, SegmentKind

KINDS: tuple[SegmentKind, ...] = get_args(SegmentKind)
TOOL_CALL = "tool call"
MARKUP: SegmentKind = "markup"
_BY_NAME: Mapping[str, SegmentKind] = {kind: kind for kind in KINDS}
MOST_MARKS = 64
LONGEST_MARK = 100
"""Characters."""


class ReplyToken(NamedTuple):
    """One token of a reply, as the automaton needs it."""

    text: str
    """The characters that it finished."""
    special: bool = False
    ends: bool = False
    """True if it ends the sequence."""


class _Undecided(NamedTuple):
    """A token whose kind the next ones decide."""

    number: int
    place: int
    """Of the character that its kind is that of, in what waits."""
    token: ReplyToken


class ReplyState(NamedTuple):
    """Where a reply stands behind one of its tokens. Each token makes a new one, so that branches share them."""

    state: str
    """Of the characters that are decided."""
    tokens: int = 0
    """How many there were so far."""
    waiting: str = ""
    """Characters that may be the beginning of a mark."""
    undecided: tuple[_Undecided, ...] = ()
    kind: SegmentKind = "answer"
    """Of the last token; provisional where that is among the undecided."""
    settled: tuple[tuple[int, SegmentKind], ...] = ()
    """Tokens before the last one that it decided, by number, with their kinds."""
    entered: tuple[str, ...] = ()
    """States that the last token led to, in their order."""

    @property
    def provisional(self) -> int:
        """How many tokens at the end have no certain kind yet; a mark within markup changes nothing."""
        if not self.undecided or kind_of(self.state) == MARKUP:
            return 0
        return self.tokens - self.undecided[0].number


class ReplyReader:
    """Reads replies of one format.

    Args:
        format: Of a recording, too: marks that can't be such are left out.
    """

    def __init__(self, format: ReplyFormat) -> None:
        self.format = format
        self._marks: dict[str, list[tuple[str, str]]] = {}
        for mark in format.marks[:MOST_MARKS]:
            if 0 < len(mark.text) <= LONGEST_MARK:
                self._marks.setdefault(mark.at, []).append((mark.text, mark.to))
        self._begins: Mapping[str, frozenset[str]] = {
            state: frozenset(text[0] for text, _ in marks) for state, marks in self._marks.items()
        }

    @property
    def begin(self) -> ReplyState:
        """Before the first token."""
        return ReplyState(self.format.begin, kind=kind_of(self.format.begin))

    def advance(self, at: ReplyState, token: ReplyToken) -> ReplyState:
        """Take in the next token."""
        text, number = at.waiting + token.text, at.tokens
        undecided = at.undecided
        if token.text or undecided:
            bare = len(token.text) - len(token.text.lstrip())
            place = len(at.waiting) + (bare if bare < len(token.text) else 0)
            undecided = (*undecided, _Undecided(number, place, token))
        entered: list[str] = []
        kinds: dict[int, SegmentKind] = {}
        state, end, waits = at.state, 0, iter(undecided)
        first = next(waits, None)
        for before, length, after in self._pieces(at.state, text):
            end += length
            while first is not None and first.place < end:
                kinds[first.number] = MARKUP if after is not None else _told(kind_of(before), first.token)
                first = next(waits, None)
            if after is not None:
                state = after
                entered.append(after)
        left: list[_Undecided] = []
        while first is not None:
            left.append(first._replace(place=first.place - end))
            first = next(waits, None)
        own = kinds.pop(number, None) or _told(kind_of(state), token)
        settled = tuple(kinds.items())
        return ReplyState(state, number + 1, text[end:], tuple(left), own, settled, tuple(entered))

    def state_after(self, text: str) -> str:
        """The state behind a whole text."""
        state = self.format.begin
        for before, _, after in self._pieces(state, text):
            state = after or before
        return state

    def split(self, text: str) -> list[tuple[str, int, int]]:
        """A whole reply as states and their places, each from one character up to another; marks are left out."""
        parts: list[tuple[str, int, int]] = []
        state, end = self.format.begin, 0
        for before, length, after in self._pieces(state, text):
            if after is None:
                parts.append((before, end, end + length))
            state, end = after or before, end + length
        if end == len(text):
            return parts
        if parts and parts[-1][2] == end:  # what waited for more of a mark continues with it
            state, end = parts.pop()[:2]
        return [*parts, (state, end, len(text))]

    def _pieces(self, state: str, text: str) -> Iterator[tuple[str, int, str | None]]:
        """The beginning of a text that is decided: for each piece its state, its length and, for a mark, the next."""
        done = begun = 0
        while done < len(text):
            if text[done] not in self._begins.get(state, ()):
                done += 1
                continue
            marks = self._marks[state]
            if (hit := next((mark for mark in marks if text.startswith(mark[0], done)), None)) is None:
                rest = text[done : done + LONGEST_MARK]
                if any(mark.startswith(rest) for mark, _ in marks):
                    break
                done += 1
                continue
            if done > begun:
                yield state, done - begun, None
            yield state, len(hit[0]), hit[1]
            state = hit[1]
            done = begun = done + len(hit[0])
        if done > begun:
            yield state, done - begun, None


def kind_of(state: str) -> SegmentKind:
    """The kind of the text in a state."""
    return _BY_NAME.get(state.partition(":")[0], MARKUP)


def _told(kind: SegmentKind, token: ReplyToken) -> SegmentKind:
    """The kind of a token in a text of a kind: a special one is markup, but for those that tool calls are made of."""
    return MARKUP if token.ends or (token.special and kind != TOOL_CALL) else kind


def last_call(format: ReplyFormat, tokens: Sequence[ReplyToken]) -> tuple[str, int] | None:
    """The last tool call of a reply.

    Args:
        format: Of the reply.
        tokens: Of the reply; a token that ends it is no text.

    Returns:
        Its text without its marks, and the place of that among the characters of the tokens; None where there is none.
    """
    text = "".join("" if token.ends else token.text for token in tokens)
    calls = [part for part in ReplyReader(format).split(text) if part[0] == TOOL_CALL]
    return (text[calls[-1][1] : calls[-1][2]], calls[-1][1]) if calls else None
