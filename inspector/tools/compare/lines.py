"""The lines of a comparison, and the columns of each of its halves: pure, from tokens to words and numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from engine.frozen import frozen
from inspector import scales
from inspector.state.session_tree import Item
from inspector.tools.compare.alignment import LEAST, MOST, Meeting, Pair
from inspector.tools.compare.comparison import Comparison

LEFT, RIGHT = 0, 1
SIDES = ("left", "right")


@frozen
class Rule:
    """A line of words between two stretches of tokens."""

    words: str
    joins: bool = False
    """Whether both are the same from here on."""


Line = Pair | Rule


@frozen
class PairColumn:
    """One number of a token."""

    head: str
    cells: int
    text: Callable[[Item], str]


def _prob(item: Item) -> str:
    return "" if item.prob is None else scales.percent(item.prob)


def _bits(item: Item) -> str:
    value = scales.METRIC["surprisal"].value(item)
    return "" if value is None else scales.bits(value)


def _rank(item: Item) -> str:
    return "" if item.rank is None else scales.count(item.rank)


PROB, BITS = PairColumn("p", 9, _prob), PairColumn("bits", 7, _bits)
RANK = PairColumn("rank", 7, _rank)
SUM_CELLS = 10
"""Of the cumulative logprob, which is no figure of the token alone."""
POSITION_CELLS = 6
TOKEN_CELLS = 9
"""The least that a token should have."""


@frozen
class PairColumns:
    """What a half has room for."""

    position: bool
    numbers: tuple[PairColumn, ...]
    sum: bool

    @property
    def cells(self) -> int:
        """Cells without the token."""
        numbers = sum(column.cells for column in self.numbers)
        return POSITION_CELLS * self.position + numbers + SUM_CELLS * self.sum


FORMS = (
    PairColumns(True, (PROB, BITS, RANK), True),
    PairColumns(True, (PROB, BITS, RANK), False),
    PairColumns(True, (PROB, BITS), False),
    PairColumns(True, (PROB,), False),
    PairColumns(False, (PROB,), False),
)
"""From the roomiest to the narrowest."""


def fitting(width: int) -> PairColumns:
    """The most columns that leave room for the token in a half of `width` cells."""
    return next((form for form in FORMS if width - form.cells >= TOKEN_CELLS), FORMS[-1])


def lines(comparison: Comparison) -> Iterator[Line]:
    """The pairs of a comparison, and words where they part and where they meet."""
    before = True
    met = iter(comparison.meetings)
    for place, pair in enumerate(comparison.pairs):
        if place == comparison.shared:
            yield Rule(_parting(comparison))
            before = False
        if pair.joined and not before:
            yield Rule(_meeting(next(met)), joins=True)
        elif before and not pair.joined:
            yield Rule("they part again")
        yield pair
        before = pair.joined
    if len(comparison.pairs) == comparison.shared:
        yield Rule("nothing differs: it is the same path")
    elif not comparison.searched:
        yield Rule(f"only the first {scales.count(MOST)} tokens of each were searched for meetings")


def _parting(comparison: Comparison) -> str:
    shared = f"after {_tokens(comparison.shared)} that both share"
    for side, totals in zip(SIDES, comparison.totals, strict=True):
        if not totals.tokens:
            return f"the {side} one ends here, {shared}"
    return f"they part here, {shared}"


def _meeting(meeting: Meeting) -> str:
    words = f"they meet again: the same {_tokens(meeting.length)}"
    if not meeting.shift:
        return words
    return f"{words}, {abs(meeting.shift)} later on the {SIDES[meeting.shift > 0]}"


def _tokens(count: int) -> str:
    return f"{scales.count(count)} token{'' if count == 1 else 's'}"


def summary(comparison: Comparison) -> str:
    """How much of two branches is the same, in a few words."""
    if not comparison.meetings:
        return f"they share no {LEAST} tokens in a row after the parting"
    same = sum(meeting.length for meeting in comparison.meetings)
    times = "once" if len(comparison.meetings) == 1 else f"{len(comparison.meetings)} times"
    return f"they meet again {times}, for {_tokens(same)}"


def places(drawn: Sequence[Line]) -> list[int]:
    """Indices of the lines with tokens among all lines."""
    return [place for place, line in enumerate(drawn) if isinstance(line, Pair)]
