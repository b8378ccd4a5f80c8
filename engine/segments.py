"""The segments of a reply while it is generated: a text automaton over the marks of a `ReplyFormat`.

The marks are found in the text, as in mlx_lm's server, so that a mark spelled out in several tokens counts, too. The
kind of a token is that of its first character that is not a space. While the last characters may be the beginning of a
mark, the kinds of their tokens are provisional. The engine evaluates segment breakpoints with it, and the screen labels
live and recorded tokens with it; mlx_lm's own `TextStateMachine` would need MLX in a replay.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple, get_args

from engine.protocol import ReplyFormat, SegmentKind

KINDS: Mapping[str, SegmentKind] = {kind: kind for kind in get_args(SegmentKind)}
TOOL_CALL = "tool call"
MARKUP: SegmentKind = "markup"
MOST_MARKS = 64
LONGEST_MARK = 100
"""Characters."""


class ReplyToken(NamedTuple):
    """One token of a reply, as the automaton needs it."""

    text: str
    """The characters that it completes."""
    special: bool = False
    ends: bool = False
    """True if it ends the sequence."""


class ReplyState(NamedTuple):
    """The state after one token of a reply. It is immutable, so that branches can share it; within plain text most
    states are equal to the one before, so that they can be stored once.
    """

    state: str
    """State after the characters that are decided."""
    waiting: str = ""
    """Characters that may be the beginning of a mark."""
    undecided: tuple[tuple[int, int, ReplyToken], ...] = ()
    """Tokens without a final kind: for each the number of tokens after it, the index among the waiting characters of
    the one that decides its kind, and the token."""
    kind: SegmentKind = "answer"
    """Kind of the last token; provisional if the token is undecided."""
    settled: tuple[tuple[int, SegmentKind], ...] = ()
    """Earlier tokens whose kinds the last token decided: the number of tokens after each, and its kind."""
    entered: tuple[str, ...] = ()
    """States that the last token entered, in order."""
    provisional: int = 0
    """Number of tokens at the end with a provisional kind; 0 within markup, where a mark changes nothing."""


class ReplyReader:
    """Reads replies of one format.

    Args:
        format: Format of the replies, which may come from a recording. Marks that are empty or too long, and those
            beyond the first `MOST_MARKS`, are ignored.
    """

    def __init__(self, format: ReplyFormat) -> None:
        self.format = format
        self._marks: dict[str, dict[str, str]] = {}
        for mark in format.marks[:MOST_MARKS]:
            if 0 < len(mark.text) <= LONGEST_MARK:
                self._marks.setdefault(mark.at, {}).setdefault(mark.text, mark.to)
        self._patterns = {at: re.compile("|".join(map(re.escape, each))) for at, each in self._marks.items()}

    @property
    def begin(self) -> ReplyState:
        """The state before the first token."""
        return ReplyState(self.format.begin, kind=kind_of(self.format.begin))

    def advance(self, at: ReplyState, token: ReplyToken) -> ReplyState:
        """The state after the next token."""
        if at.state not in self._marks and not at.undecided:  # as in raw text: no mark can begin here
            return ReplyState(at.state, kind=kind_of(at.state, token))
        text = at.waiting + token.text
        tokens = [(back + 1, place, each) for back, place, each in at.undecided]
        if token.text or tokens:
            blanks = len(token.text) - len(token.text.lstrip())
            first = len(at.waiting) + (blanks if blanks < len(token.text) else 0)
            tokens.append((0, first, token))
        pieces = list(self._pieces(at.state, text))
        ends = list(accumulate(length for _, length, _ in pieces))
        done = ends[-1] if ends else 0
        kinds: dict[int, SegmentKind] = {}
        for back, place, each in tokens:
            if place < done:
                before, _, after = pieces[bisect_right(ends, place)]
                kinds[back] = MARKUP if after is not None else kind_of(before, each)
        left = [(back, place - done, each) for back, place, each in tokens if place >= done]
        entered = tuple(after for _, _, after in pieces if after is not None)
        state = entered[-1] if entered else at.state
        own = kinds.pop(0, None) or kind_of(state, token)
        provisional = left[0][0] + 1 if left and kind_of(state) != MARKUP else 0
        return ReplyState(state, text[done:], tuple(left), own, tuple(kinds.items()), entered, provisional)

    def split(self, text: str) -> list[tuple[str, int, int]]:
        """Split a complete reply into parts: the state, first character and end of each; marks are left out."""
        parts: list[tuple[str, int, int]] = []
        state, end = self.format.begin, 0
        for before, length, after in self._pieces(state, text):
            if after is None:
                parts.append((before, end, end + length))
            state, end = after or before, end + length
        if end == len(text):
            return parts
        if parts and parts[-1][2] == end:  # the characters that waited for a mark belong to the last part
            state, end = parts.pop()[:2]
        return [*parts, (state, end, len(text))]

    def _pieces(self, state: str, text: str) -> Iterator[tuple[str, int, str | None]]:
        """The decided beginning of a text, as pieces: state, length and, for a mark, the next state."""
        done = 0
        while done < len(text):
            marks, end = self._marks.get(state, {}), len(text)
            tails = range(max(done, end - LONGEST_MARK), end)
            waits = next((at for at in tails if any(mark.startswith(text[at:]) for mark in marks)), end)
            hit = self._patterns[state].search(text, done) if marks else None
            if hit is not None and hit.start() > waits:  # a longer mark may begin before it
                hit = None
            begin = waits if hit is None else hit.start()
            if begin > done:
                yield state, begin - done, None
            if hit is None:
                return
            yield state, len(hit[0]), marks[hit[0]]
            state, done = marks[hit[0]], hit.end()


def kind_of(state: str, token: ReplyToken | None = None) -> SegmentKind:
    """The kind of the text in a state, or of a token in it.

    A special token is markup, except within a tool call; a token that ends the sequence is always markup.
    """
    kind = KINDS.get(state.partition(":")[0], MARKUP)
    if token is not None and (token.ends or (token.special and kind != TOOL_CALL)):
        return MARKUP
    return kind


def last_call(format: ReplyFormat, tokens: Sequence[ReplyToken]) -> tuple[str, int] | None:
    """The last tool call of a reply.

    Args:
        format: The reply's format.
        tokens: The reply's tokens; the text of a token that ends the sequence is ignored.

    Returns:
        Its text without its marks, and the index of its first character in the reply; None if there is no call.
    """
    text = "".join("" if token.ends else token.text for token in tokens)
    calls = [part for part in ReplyReader(format).split(text) if part[0] == TOOL_CALL]
    return (text[calls[-1][1] : calls[-1][2]], calls[-1][1]) if calls else None
