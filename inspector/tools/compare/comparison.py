"""Two branches compared: where they part, where they meet again, and what each is worth. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from engine.frozen import frozen
from engine.protocol import Step
from engine.timing import warm
from inspector.scales import METRIC
from inspector.state.branches import ROOT
from inspector.state.session_tree import Item, shared
from inspector.state.timeline import Timeline
from inspector.tools.compare.alignment import MOST, Meeting, Pair, meetings, pairs


@frozen
class Totals:
    """What the tokens of one branch come to after the parting."""

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


@frozen
class Comparison:
    """Two paths of one tree."""

    left: Sequence[Item]
    """From the root on."""
    right: Sequence[Item]
    shared: int
    """Tokens that both begin with."""
    meetings: tuple[Meeting, ...]
    """Where the same tokens come again; counted from the parting."""
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
        """The cumulative logprob after a pair's token of a side, 0 left or 1 right; None where there is none."""
        place = pair.left if side == 0 else pair.right
        return None if place is None or place < self.shared else self.cumulative[side][place - self.shared]

    @property
    def searched(self) -> bool:
        """Whether all tokens were searched for meetings, and not the first `MOST` alone."""
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
    met = meetings([item.id for item in one], [item.id for item in other])
    return Comparison(
        left,
        right,
        begun,
        met,
        (*_both(begun), *_parted(begun, pairs(len(one), len(other), met))),
        cumulative,
        tuple(one - other for one, other in zip(*cumulative, strict=False)),
        (totals(one), totals(other)),
    )


def _both(count: int) -> Iterator[Pair]:
    return (Pair(place, place, True) for place in range(count))


def _parted(shared: int, after: Iterable[Pair]) -> Iterator[Pair]:
    """Pairs after the parting, as places in the paths."""
    for pair in after:
        left = None if pair.left is None else pair.left + shared
        right = None if pair.right is None else pair.right + shared
        yield Pair(left, right, pair.joined)


def _cumulative(items: Sequence[Item]) -> tuple[float, ...]:
    return tuple(accumulate(item.logprob or 0.0 for item in items))


def totals(items: Sequence[Item]) -> Totals:
    """What some tokens come to."""
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


# ---- which branches there are -----------------------------------------------------------------


def others(timeline: Timeline) -> list[int]:
    """Where all branches end but the current path, in the order of the tree."""
    ends, waiting = [], [ROOT]
    while waiting:
        node = waiting.pop()
        after = [child for child in timeline.tree.children.get(node, ()) if child in timeline.tree.nodes]
        waiting += reversed(after)
        if not after and node not in (ROOT, timeline.tip):
            ends.append(node)
    return ends


def nearest(timeline: Timeline) -> int | None:
    """Where the branch ends that is compared first; None where there is no other.

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
