"""Two branches compared: where they part, where they meet again, and what each is worth. Pure.

Two texts share `.` and `the` everywhere, which means nothing. They meet where at least `LEAST` ids in a row are the
same: so it is windows of that many ids whose longest common subsequence is looked for, exactly, a row of its table as
the bits of one integer. 4,000 ids on each side take up to 30 ms, the most that are compared 60 ms.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from msgspec import Struct

from engine.protocol import Step
from engine.timing import warm
from engine.tree import common_prefix
from inspector import scales
from inspector.scales import METRIC
from inspector.state.branches import ROOT
from inspector.state.session_tree import Item, shared
from inspector.state.timeline import Timeline

# ---- where they meet again, and which token faces which -----------------------------------------

LEAST = 3
"""Ids in a row that make a meeting."""
MOST = 8192
"""Ids of each side that are searched for meetings; what comes after is paired in order."""
_Window = tuple[int, ...]


class Meeting(Struct, frozen=True):
    """A run of ids that both sides have."""

    left: int
    """The place on the left where it begins."""
    right: int
    length: int

    @property
    def shift(self) -> int:
        """Tokens by which it comes later on the right; below 0 where it comes earlier."""
        return self.right - self.left

    @property
    def mirrored(self) -> Meeting:
        """The same one, seen from the other side."""
        return Meeting(self.right, self.left, self.length)


class Pair(Struct, frozen=True):
    """One line: a token of each side, or of one."""

    left: int | None
    right: int | None
    joined: bool = False
    """True if it is part of what both share, before they part or where they meet again."""


def meetings(left: Sequence[int], right: Sequence[int]) -> tuple[Meeting, ...]:
    """The meetings of two runs of ids, as many as are in the same order on both sides.

    Args:
        left: Ids, of which the first `MOST` are compared.
        right: As many.

    Returns:
        Runs of `LEAST` ids and more, in order, none overlapping another on either side. The sides exchanged, the
        meetings are the same.
    """
    one, other = tuple(left[:MOST]), tuple(right[:MOST])
    if (len(other), other) < (len(one), one):  # ties are cut in the same way from both sides
        return tuple(meeting.mirrored for meeting in meetings(other, one))
    return tuple(_runs(_subsequence(_windows(one), _windows(other))))


def _windows(ids: Sequence[int]) -> list[_Window]:
    return list(zip(*(ids[place:] for place in range(LEAST)), strict=False))


def _subsequence(left: Sequence[_Window], right: Sequence[_Window]) -> list[tuple[int, int]]:
    """The places of a longest common subsequence, in order.

    A bit of a row is 0 where one more window of the left makes the subsequence longer: Hyyrö's bit-vector form of
    the table that the textbook fills cell by cell. Its rows are kept, and walked back.
    """
    rows, places = _rows(left, right), []
    at, row = len(left) - 1, len(right)
    while at >= 0 and row > 0:
        if rows[row] >> at & 1:
            at -= 1
        elif not rows[row - 1] >> at & 1:
            row -= 1
        else:
            row -= 1
            places.append((at, row))
            at -= 1
    return places[::-1]


def _rows(left: Sequence[_Window], right: Sequence[_Window]) -> list[int]:
    places: dict[_Window, int] = {}
    for place, window in enumerate(left):
        places[window] = places.get(window, 0) | 1 << place
    full = (1 << len(left)) - 1
    row, rows = full, [full]
    for window in right:
        if (here := row & places.get(window, 0)) != 0:
            row = ((row + here) | (row - here)) & full
        rows.append(row)
    return rows


def _runs(windows: Iterable[tuple[int, int]]) -> Iterator[Meeting]:
    """Windows that follow one another as one run; where two runs overlap, the later one begins behind the other."""
    left_end = right_end = 0
    for left, right, count in _consecutive(windows):
        taken = max(0, left_end - left, right_end - right)
        length = count + LEAST - 1 - taken
        if length >= LEAST:
            yield Meeting(left + taken, right + taken, length)
            left_end, right_end = left + taken + length, right + taken + length


def _consecutive(windows: Iterable[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Of each run of windows the place on the left, the place on the right, and the number of windows."""
    runs: list[tuple[int, int, int]] = []
    for left, right in windows:
        if runs and (left, right) == (runs[-1][0] + runs[-1][2], runs[-1][1] + runs[-1][2]):
            runs[-1] = (*runs[-1][:2], runs[-1][2] + 1)
        else:
            runs.append((left, right, 1))
    return runs


def pairs(left: int, right: int, met: Sequence[Meeting]) -> Iterator[Pair]:
    """Which token faces which: those of a meeting each other, those between two meetings in their order.

    Args:
        left: Tokens on the left.
        right: Tokens on the right.
        met: Their meetings, in order.

    Yields:
        Pairs in order; each token of either side is in exactly one.
    """
    left_end, right_end = 0, 0
    for meeting in (*met, Meeting(left, right, 0)):
        for step in range(max(meeting.left - left_end, meeting.right - right_end)):
            yield Pair(
                left_end + step if left_end + step < meeting.left else None,
                right_end + step if right_end + step < meeting.right else None,
            )
        yield from (Pair(meeting.left + n, meeting.right + n, True) for n in range(meeting.length))
        left_end, right_end = meeting.left + meeting.length, meeting.right + meeting.length


# ---- what each is worth -------------------------------------------------------------------------

LEFT, RIGHT = 0, 1
SIDES = ("left", "right")


class Totals(Struct, frozen=True):
    """The totals of one branch after the parting."""

    tokens: int
    unknown: int
    """Tokens without a logprob: of a prompt whose logprobs are off. The other figures leave them out."""
    logprob: float
    """Of all tokens together, natural logarithm."""
    mean: float | None
    """Logprob of a token; None where none is known, as with the figures below."""
    perplexity: float | None
    entropy_bits: float | None
    """Mean of what the tokens were taken from."""
    ms: float | None
    """Mean of a step."""


class Comparison(Struct, frozen=True):
    """Two paths of one tree."""

    left: Sequence[Item]
    """From the root on."""
    right: Sequence[Item]
    shared: int
    """Tokens that both begin with."""
    same: int
    """Tokens that follow with the same ids on both sides though they were computed twice: above 0 only where something
    else than a token made a branch, as interventions do."""
    meetings: tuple[Meeting, ...]
    """The runs of the same tokens; counted from the parting."""
    pairs: tuple[Pair, ...]
    """Which token faces which, as places in the paths: the shared ones first."""
    cumulative: tuple[tuple[float, ...], tuple[float, ...]]
    """Logprob of all tokens since the parting, after each of them, for left and right; unknown ones add nothing."""
    gap: tuple[float, ...]
    """Left's cumulative logprob less right's, after each token of both, as long as both go on."""
    totals: tuple[Totals, Totals]
    """Of left and right."""

    @property
    def turns(self) -> tuple[int, ...]:
        """Places of the pairs with which they part or meet."""
        after = zip(self.pairs, self.pairs[1:], strict=False)
        turns = [place for place, (one, next) in enumerate(after, 1) if one.joined != next.joined]
        apart = self.shared < len(self.pairs) and self.shared not in turns
        return tuple(sorted([*turns, self.shared])) if apart else tuple(turns)

    def items(self, pair: Pair) -> tuple[Item | None, Item | None]:
        """The tokens of a pair."""
        left = None if pair.left is None else self.left[pair.left]
        return left, None if pair.right is None else self.right[pair.right]

    def sum(self, pair: Pair, side: int) -> float | None:
        """The cumulative logprob after a pair's token of a side; None where there is none."""
        place = pair.left if side == LEFT else pair.right
        return None if place is None or place < self.shared else self.cumulative[side][place - self.shared]

    @property
    def searched(self) -> bool:
        """True if all tokens were searched for meetings, and not the first `MOST` alone."""
        return max(side.tokens for side in self.totals) <= MOST


def compare(left: Sequence[Item], right: Sequence[Item]) -> Comparison:
    """Compare two paths of one tree.

    Args:
        left: Tokens from the root on.
        right: Tokens of the other path.
    """
    begun = shared(left, right)
    one, other = left[begun:], right[begun:]
    cumulative = _cumulative(one), _cumulative(other)
    same = common_prefix((item.id for item in one), (item.id for item in other))
    met = (*([Meeting(0, 0, same)] if same else []), *_later(one, other, same))
    both = (Pair(place, place, True) for place in range(begun))
    return Comparison(
        left,
        right,
        begun,
        same,
        met,
        (*both, *_parted(begun, pairs(len(one), len(other), met))),
        cumulative,
        tuple(one - other for one, other in zip(*cumulative, strict=False)),
        (totals(one), totals(other)),
    )


def _later(left: Sequence[Item], right: Sequence[Item], same: int) -> Iterator[Meeting]:
    """The meetings behind the tokens that are the same from the first one on."""
    for met in meetings([item.id for item in left[same:]], [item.id for item in right[same:]]):
        yield Meeting(met.left + same, met.right + same, met.length)


def _parted(shared: int, after: Iterable[Pair]) -> Iterator[Pair]:
    """Pairs after the parting, as places in the paths."""
    for pair in after:
        left = None if pair.left is None else pair.left + shared
        right = None if pair.right is None else pair.right + shared
        yield Pair(left, right, pair.joined)


def _cumulative(items: Sequence[Item]) -> tuple[float, ...]:
    return tuple(accumulate(item.logprob or 0.0 for item in items))


def totals(items: Sequence[Item]) -> Totals:
    """The totals of some tokens."""
    known = [item.logprob for item in items if item.logprob is not None]
    entropies = [value for item in items if (value := METRIC["entropy"].value(item)) is not None]
    mean = _mean(known)
    return Totals(
        tokens=len(items),
        unknown=len(items) - len(known),
        logprob=math.fsum(known),
        mean=mean,
        perplexity=None if mean is None else math.exp(min(-mean, 700.0)),
        entropy_bits=_mean(entropies),
        ms=_mean(warm(item.ms for item in items if isinstance(item, Step))),
    )


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


# ---- which branches there are -------------------------------------------------------------------


def others(timeline: Timeline) -> list[int]:
    """The last nodes of all branches but the current path, in the order of the tree."""
    ends, waiting = [], [ROOT]
    while waiting:
        node = waiting.pop()
        after = [child for child in timeline.tree.children.get(node, ()) if child in timeline.tree.nodes]
        waiting += reversed(after)
        if not after and node not in (ROOT, timeline.tip):
            ends.append(node)
    return ends


def nearest(timeline: Timeline) -> int | None:
    """The last node of the branch that is compared first; None where there is no other.

    It is the one that parts from the path nearest before the selected token, or failing that nearest after it: what was
    taken back at the tip, or else of those that part there the one that was left last, and made last among equals.
    """
    slots = range(len(timeline.items))
    here = min(timeline.slot, len(slots) - 1)
    backward, forward = list(slots[here::-1]) if slots else [], list(slots[here + 1 :])
    ahead = [timeline.tree.leaf(timeline.tip)] if timeline.tree.children.get(timeline.tip) else []
    if timeline.following and ahead:
        return ahead[0]
    for slot in (*backward, *forward):
        if siblings := [node for node in timeline.siblings(slot) if node != timeline.items[slot].node]:
            return timeline.tree.leaf(max(siblings, key=lambda node: (timeline.tree.left.get(node, 0), node)))
    return ahead[0] if ahead else None


# ---- in lines -----------------------------------------------------------------------------------


class Rule(Struct, frozen=True):
    """A line of words between two stretches of tokens."""

    words: str
    joins: bool = False
    """True if both are the same from here on."""


Line = Pair | Rule


def lines(comparison: Comparison) -> Iterator[Line]:
    """The pairs of a comparison, and words where they part and where they meet."""
    before = True
    met = iter(comparison.meetings)
    for place, pair in enumerate(comparison.pairs):
        if place == comparison.shared:
            yield Rule(_parting(comparison), joins=comparison.same > 0)
            before = comparison.same > 0 and next(met, None) is not None
        if pair.joined and not before:
            yield Rule(_meeting(next(met)), joins=True)
        elif before and not pair.joined:
            yield Rule(_parting_again(comparison, place))
        yield pair
        before = pair.joined
    if len(comparison.pairs) == comparison.shared:
        yield Rule("nothing differs: it is the same path")
    elif not comparison.searched:
        yield Rule(f"only the first {scales.count(MOST)} tokens of each were searched for meetings")


def _parting(comparison: Comparison) -> str:
    shared = f"after {scales.count(comparison.shared)} shared token{'' if comparison.shared == 1 else 's'}"
    if comparison.same:
        return f"two branches of the same {tokens_words(comparison.same)} from here on, {shared}"
    for side, totals in zip(SIDES, comparison.totals, strict=True):
        if not totals.tokens:
            return f"the {side} one ends here, {shared}"
    return f"they part here, {shared}"


def _parting_again(comparison: Comparison, place: int) -> str:
    """The rule at a pair that is not the same on both sides, after pairs that are."""
    if place > comparison.shared + comparison.same:
        return "they part again"
    for side, totals in zip(SIDES, comparison.totals, strict=True):
        if totals.tokens == comparison.same:
            return f"the {side} one ends here"
    return f"they part here, after the same {tokens_words(comparison.same)}"


def _meeting(meeting: Meeting) -> str:
    words = f"they meet again: the same {tokens_words(meeting.length)}"
    if not meeting.shift:
        return words
    return f"{words}, {abs(meeting.shift)} later on the {SIDES[meeting.shift > 0]}"


def tokens_words(count: int) -> str:
    """`24 tokens`."""
    return f"{scales.count(count)} token{'' if count == 1 else 's'}"


def summary(comparison: Comparison) -> str:
    """The extent to which two branches are the same, in a few words."""
    again = comparison.meetings[1 if comparison.same else 0 :]
    times = "once" if len(again) == 1 else f"{len(again)} times"
    met = f"they meet again {times}, for {tokens_words(sum(meeting.length for meeting in again))}"
    if comparison.same:
        return f"the same {tokens_words(comparison.same)}" + (f"; {met}" if again else "")
    return met if again else f"they share no {LEAST} tokens in a row after that"
