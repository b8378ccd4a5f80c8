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

KINDS: Mapping[str, SegmentKind] = {kind: kind for kind in get_args(SegmentKind)}
"""By their names."""
TOOL_CALL = "tool call"
MARKUP: SegmentKind = "markup"
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

    back: int
    """How many tokens came after it."""
    place: int
    """Of the character that its kind is that of, in what waits."""
    token: ReplyToken


class ReplyState(NamedTuple):
    """Where a reply stands behind one of its tokens. Each token makes a new one, so that branches share them; behind
    most tokens of a text it is equal to the one before, which whoever keeps them can keep once.
    """

    state: str
    """Of the characters that are decided."""
    waiting: str = ""
    """Characters that may be the beginning of a mark."""
    undecided: tuple[_Undecided, ...] = ()
    kind: SegmentKind = "answer"
    """Of the last token; provisional where that is among the undecided."""
    settled: tuple[tuple[int, SegmentKind], ...] = ()
    """Tokens that the last one decided, each as how many tokens before it, with their kinds."""
    entered: tuple[str, ...] = ()
    """States that the last token led to, in their order."""
    provisional: int = 0
    """How many tokens at the end have no certain kind yet; a mark within markup changes nothing."""


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
        if at.state not in self._marks and not at.undecided:  # as in raw text: no mark can begin here
            return ReplyState(at.state, kind=kind_of(at.state, token))
        text = at.waiting + token.text
        undecided = tuple(each._replace(back=each.back + 1) for each in at.undecided)
        if token.text or undecided:
            bare = len(token.text) - len(token.text.lstrip())
            place = len(at.waiting) + (bare if bare < len(token.text) else 0)
            undecided = (*undecided, _Undecided(0, place, token))
        pieces, entered = list(self._pieces(at.state, text)), []
        done = sum(length for _, length, _ in pieces)
        kinds: dict[int, SegmentKind] = {}
        state, end, waits = at.state, 0, iter(undecided)
        first = next(waits, None)
        for before, length, after in pieces:
            end += length
            while first is not None and first.place < end:
                kinds[first.back] = MARKUP if after is not None else kind_of(before, first.token)
                first = next(waits, None)
            if after is not None:
                state = after
                entered.append(after)
        left = tuple(each._replace(place=each.place - done) for each in undecided if each.back not in kinds)
        own = kinds.pop(0, None) or kind_of(state, token)
        settled = tuple(kinds.items())
        provisional = left[0].back + 1 if left and kind_of(state) != MARKUP else 0
        return ReplyState(state, text[done:], left, own, settled, tuple(entered), provisional)

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


def kind_of(state: str, token: ReplyToken | None = None) -> SegmentKind:
    """The kind of the text in a state, or of a token in it.

    A special token is markup, but for those that tool calls are made of; so is one that ends the sequence.
    """
    kind = KINDS.get(state.partition(":")[0], MARKUP)
    if token is not None and (token.ends or (token.special and kind != TOOL_CALL)):
        return MARKUP
    return kind


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
