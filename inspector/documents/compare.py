"""Two branches compared: where they diverge and match again, their totals, and the same tokens made differently.

Any two texts share `.` and `the`, which means nothing. So they match only where at least `LEAST` ids in a row are the
same: the matches are the exact longest common subsequence of windows of that many ids, computed with each row of the
table as the bits of one integer. 4,000 ids on each side take up to 30 ms, `MOST` ids 60 ms.

Under interventions the same tokens are computed again on a separate branch: then the text is the same, but the
probabilities differ. All numbers are those of the records; a KL divergence is a lower bound from their candidates.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, groupby, pairwise

from msgspec import Struct

from engine.protocol import Candidate, Step
from engine.timing import warm
from engine.tree import common_prefix
from inspector import scales
from inspector.keys import key_for
from inspector.scales import METRIC, bits, counted, others_prob, percent
from inspector.state.branches import ROOT
from inspector.state.conditions import by_token
from inspector.state.session_tree import Item, SessionTree, numbered, quoted_label, shared
from inspector.state.timeline import Timeline

# ---- where they match again, and which token faces which -----------------------------------------

LEAST = 3
"""Ids in a row that make a match."""
MOST = 8192
"""Maximum ids of each side that are searched for matches; later ones are paired in order."""
_Window = tuple[int, ...]
LEFT, RIGHT = 0, 1
SIDES = ("this path", "the other")
"""Names of left and right in a sentence: the texts may also be one above the other."""


class Match(Struct, frozen=True):
    """A run of ids that both sides have."""

    left: int
    """Index of its first id on the left."""
    right: int
    length: int

    @property
    def shift(self) -> int:
        """Tokens by which it comes later on the right; below 0 if it comes earlier."""
        return self.right - self.left

    @property
    def mirrored(self) -> Match:
        """The same match with the sides exchanged."""
        return Match(self.right, self.left, self.length)


class Pair(Struct, frozen=True):
    """One line: a token of each side, or of one."""

    left: int | None
    right: int | None
    joined: bool = False
    """True if both sides share the token, before they diverge or in a match."""

    def on(self, side: int) -> int | None:
        """The token of a side."""
        return self.right if side else self.left


def matches(left: Sequence[int], right: Sequence[int]) -> tuple[Match, ...]:
    """The matches of two runs of ids, in the same order on both sides.

    Args:
        left: Ids; the first `MOST` are compared.
        right: Ids of the other side.

    Returns:
        Runs of `LEAST` ids and more, in order; no two overlap on either side. They are the same if the sides are
        exchanged.
    """
    one, other = tuple(left[:MOST]), tuple(right[:MOST])
    if (len(other), other) < (len(one), one):  # so that ties are decided in the same way from both sides
        return tuple(match.mirrored for match in matches(other, one))
    windows = (list(zip(*(ids[n:] for n in range(LEAST)), strict=False)) for ids in (one, other))
    return tuple(_runs(_subsequence(*windows)))


def _subsequence(left: Sequence[_Window], right: Sequence[_Window]) -> list[tuple[int, int]]:
    """Indices of a longest common subsequence, in order.

    This is Hyyrö's bit-vector form of the textbook's table: a bit of a row is 0 if that window of the left makes the
    subsequence longer. The rows are kept, and walked back to find the subsequence.
    """
    held: dict[_Window, int] = {}
    for place, window in enumerate(left):
        held[window] = held.get(window, 0) | 1 << place
    line = full = (1 << len(left)) - 1
    rows = [full]
    for window in right:
        if (here := line & held.get(window, 0)) != 0:
            line = ((line + here) | (line - here)) & full
        rows.append(line)

    places = []
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


def _runs(windows: Iterable[tuple[int, int]]) -> Iterator[Match]:
    """Windows that follow one another as one run; if two runs overlap, the later one begins after the other."""
    left_end = right_end = 0
    for _, run in groupby(enumerate(windows), lambda each: (each[1][0] - each[0], each[1][1] - each[0])):
        (_, (left, right)), *more = run
        taken = max(0, left_end - left, right_end - right)
        length = len(more) + LEAST - taken
        if length >= LEAST:
            yield Match(left + taken, right + taken, length)
            left_end, right_end = left + taken + length, right + taken + length


def pairs(left: int, right: int, met: Sequence[Match], begun: int = 0) -> Iterator[Pair]:
    """The tokens that face each other: those of a match, and those between two matches in their order.

    Args:
        left: Number of tokens on the left.
        right: Number of tokens on the right.
        met: Their matches, in order.
        begun: Number of tokens before these on each side.

    Yields:
        Pairs in order; each token of either side is in exactly one.
    """
    one, other = 0, 0
    for match in (*met, Match(left, right, 0)):
        for n in range(max(match.left - one, match.right - other)):
            yield Pair(
                begun + one + n if one + n < match.left else None,
                begun + other + n if other + n < match.right else None,
            )
        one, other = match.left + match.length, match.right + match.length
        for n in range(match.length):
            yield Pair(begun + match.left + n, begun + match.right + n, True)


# ---- the same tokens made differently -----------------------------------------------------------

LEAST_SEEN = 0.00005
"""The smallest difference of two probabilities that their texts show."""


class TokenChange(Struct, frozen=True):
    """One token that both branches have after the same tokens: right minus left."""

    place: int
    """Index of its pair."""
    left: Item
    right: Item
    prob: float
    """Difference of its probabilities."""
    bits: float
    """Difference of its surprisals."""
    kl_bits: float | None
    """A lower bound of KL(left || right); None if candidates are missing."""


def _changes(pairs: Iterable[tuple[Item, Item]], begun: int) -> Iterator[TokenChange]:
    """The changes of equal tokens, as far as their probabilities are known on both sides.

    Args:
        pairs: The tokens of both sides.
        begun: Index of the first pair.
    """
    for place, (left, right) in enumerate(pairs, begun):
        if left.prob is not None and right.prob is not None:
            before, after = (METRIC["surprisal"].value(item) for item in (left, right))
            differs = 0.0 if before is None or after is None or before == after else after - before
            yield TokenChange(place, left, right, right.prob - left.prob, differs, least_kl_bits(left, right))


def least_kl_bits(left: Item, right: Item) -> float | None:
    """A lower bound of KL(left || right) in bits, from the candidates that both records list and all other tokens
    taken as one.

    Args:
        left: A token.
        right: The same token after the same ones, computed differently.

    Returns:
        Never more than the divergence over the whole vocabulary; None if a side has no candidates.
    """
    (one, one_rest), (other, other_rest) = _listed(left), _listed(right)
    if not one or not other:
        return None
    both = one.keys() & other.keys()
    pairs = [(one[id].prob, other[id].prob) for id in both]
    rest = [math.fsum(each.prob for id, each in side.items() if id not in both) for side in (one, other)]
    pairs.append((one_rest + rest[0], other_rest + rest[1]))
    # a probability that float32 rounds to 0 would make its term infinite: without the term the bound is only lower
    return max(0.0, math.fsum(p * math.log2(p / q) for p, q in pairs if p > 0 and q > 0))


def _listed(item: Item) -> tuple[dict[int, Candidate], float]:
    """The candidates of a token by id, and the probability of all others together."""
    if isinstance(item, Step):
        return {each.id: each for each in item.choice.candidates}, item.choice.others_prob
    return {each.id: each for each in item.candidates}, others_prob(item)


# ---- the totals of each -------------------------------------------------------------------------


class Totals(Struct, frozen=True):
    """The totals of one branch after the divergence."""

    tokens: int
    unknown: int
    """Number of tokens without a logprob, as in a prompt that was read without. The other figures leave them out."""
    logprob: float
    """Sum of the tokens' logprobs, natural logarithm."""
    mean: float | None
    """Mean logprob of a token. This and the figures below are None if they aren't known for any token."""
    perplexity: float | None
    entropy_bits: float | None
    """Mean entropy of the distributions that the tokens were taken from."""
    ms: float | None
    """Mean milliseconds of a step."""


class Comparison(Struct, frozen=True):
    """Two paths of one tree."""

    left: Sequence[Item]
    """Tokens from the root on."""
    right: Sequence[Item]
    shared: int
    """Number of tokens that both begin with."""
    same: int
    """Number of tokens after these that have the same ids on both sides but were computed twice: above 0 only if
    something other than a token made a branch, as interventions do."""
    matches: tuple[Match, ...]
    """The runs of the same tokens; counted from the divergence."""
    pairs: tuple[Pair, ...]
    """The tokens that face each other, as indices in the paths, the shared ones first."""
    cumulative: tuple[tuple[float, ...], tuple[float, ...]]
    """Sum of the logprobs since the divergence, after each token, for left and right; unknown ones add nothing."""
    gap: tuple[float, ...]
    """Left's cumulative logprob minus right's, after each token of both, as long as both continue."""
    totals: tuple[Totals, Totals]
    """The totals of left and right."""
    changes: tuple[TokenChange, ...]
    """The changes of the tokens in `same` whose probabilities are known on both sides."""

    @property
    def largest(self) -> list[TokenChange]:
        """The changes of a probability, the largest first, without those that are 0."""
        return sorted((each for each in self.changes if each.prob), key=lambda each: -abs(each.prob))

    def change(self, pair: Pair) -> TokenChange | None:
        """The change of the token that both sides of a pair have; None if it isn't one of `changes`."""
        if pair.left is None:
            return None
        at = bisect_left(self.changes, pair.left, key=lambda each: each.place)
        return self.changes[at] if at < len(self.changes) and self.changes[at].place == pair.left else None

    @property
    def turns(self) -> tuple[int, ...]:
        """Indices of the pairs at which the sides diverge or match again."""
        after = enumerate(pairwise(self.pairs), 1)
        turns = {place for place, (one, next) in after if one.joined != next.joined}
        if self.shared < len(self.pairs):
            turns.add(self.shared)
        return tuple(sorted(turns))

    def items(self, pair: Pair) -> tuple[Item | None, Item | None]:
        left = None if pair.left is None else self.left[pair.left]
        return left, None if pair.right is None else self.right[pair.right]

    def sum(self, pair: Pair, side: int) -> float | None:
        """The cumulative logprob after a side's token of a pair; None before the divergence, or without a token."""
        place = pair.on(side)
        return None if place is None or place < self.shared else self.cumulative[side][place - self.shared]


def compare(left: Sequence[Item], right: Sequence[Item]) -> Comparison:
    """Compare two paths of one tree.

    Args:
        left: Tokens from the root on.
        right: Tokens of the other path.
    """
    begun = shared(left, right)
    one, other = left[begun:], right[begun:]
    sums = [tuple(accumulate(item.logprob or 0.0 for item in side)) for side in (one, other)]
    same = common_prefix((item.id for item in one), (item.id for item in other))
    later = matches([item.id for item in one[same:]], [item.id for item in other[same:]])
    met = [Match(0, 0, same)] if same else []
    met += [Match(each.left + same, each.right + same, each.length) for each in later]
    faced = (*(Pair(place, place, True) for place in range(begun)), *pairs(len(one), len(other), met, begun))
    gap = tuple(here - there for here, there in zip(*sums, strict=False))
    changed = tuple(_changes(zip(one[:same], other[:same], strict=True), begun))
    both = totals(one), totals(other)
    return Comparison(
        left, right, begun, same, tuple(met), faced, (sums[LEFT], sums[RIGHT]), gap, both, changed
    )


def totals(items: Sequence[Item]) -> Totals:
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


# ---- the branches to compare with ---------------------------------------------------------------


def others(timeline: Timeline) -> list[int]:
    """The last nodes of all branches except the current path, in the order of the tree."""
    ends, waiting = [], [ROOT]
    while waiting:
        node = waiting.pop()
        after = [child for child in timeline.tree.children.get(node, ()) if child in timeline.tree.nodes]
        waiting += reversed(after)
        if not after and node not in (ROOT, timeline.tip):
            ends.append(node)
    return ends


def nearest(timeline: Timeline) -> int | None:
    """The last node of the branch that is compared first; None if there is no other.

    At the end of the path it is the continuation that was taken back, if there is one. Otherwise it is the branch that
    diverges nearest before the selected token, or else nearest after it; of several, the one that was left last, or
    made last.
    """
    here, slots = min(timeline.slot, len(timeline.items) - 1), len(timeline.items)
    ahead = [timeline.tree.leaf(timeline.tip)] if timeline.tree.children.get(timeline.tip) else []
    if timeline.following and ahead:
        return ahead[0]
    for slot in (*range(here, -1, -1), *range(here + 1, slots)):
        if siblings := [node for node in timeline.siblings(slot) if node != timeline.items[slot].node]:
            return timeline.tree.leaf(max(siblings, key=lambda node: (timeline.tree.left.get(node, 0), node)))
    return ahead[0] if ahead else None


# ---- in lines -----------------------------------------------------------------------------------


class Rule(Struct, frozen=True):
    """A line of words between two runs of tokens."""

    words: str
    joins: bool = False
    """True if both are the same from here on."""


Line = Pair | Rule


def lines(comparison: Comparison) -> Iterator[Line]:
    """The pairs of a comparison, with a rule wherever they diverge or match again."""
    before = True
    met = iter(comparison.matches)
    for place, pair in enumerate(comparison.pairs):
        if place == comparison.shared:
            yield Rule(_diverges(comparison), joins=comparison.same > 0)
            before = comparison.same > 0 and next(met, None) is not None
        if pair.joined and not before:
            yield Rule(_matches(next(met)), joins=True)
        elif before and not pair.joined:
            yield Rule(_diverges_again(comparison, place))
        yield pair
        before = pair.joined
    if len(comparison.pairs) == comparison.shared:
        yield Rule("nothing differs: it is the same path")
    elif max(side.tokens for side in comparison.totals) > MOST:
        yield Rule(f"only the first {scales.count(MOST)} tokens of each were searched for matches")


def _diverges(comparison: Comparison) -> str:
    shared = f"after {counted(comparison.shared, 'shared token')}"
    if comparison.same:
        return f"{_same(comparison.same)} in two branches, {shared}"
    return f"{_ends(comparison, 0) or 'they diverge here'}, {shared}"


def _ends(comparison: Comparison, tokens: int) -> str:
    """Words for a side that ends `tokens` tokens after the divergence; empty if neither does."""
    sides = zip(SIDES, comparison.totals, strict=True)
    return next((f"{side} ends here" for side, own in sides if own.tokens == tokens), "")


def divergence_words(comparison: Comparison) -> tuple[str, str]:
    """The token at which two branches diverge, and how much of the rest is the same."""
    words = _diverges(comparison).replace(" here, after", " after")
    return f"{words[0].upper()}{words[1:]}", summary(comparison)


def _diverges_again(comparison: Comparison, place: int) -> str:
    """The rule at a pair that is not the same on both sides, after pairs that are."""
    if place > comparison.shared + comparison.same:
        return "they diverge again"
    return _ends(comparison, comparison.same) or f"they diverge here, after {_same(comparison.same)}"


def _matches(match: Match) -> str:
    words = f"they match again: {_same(match.length)}"
    if not match.shift:
        return words
    return f"{words}, {abs(match.shift)} later in {SIDES[match.shift > 0]}"


def _same(count: int) -> str:
    return f"the same {counted(count, 'token') if count > 1 else 'token'}"


def summary(comparison: Comparison) -> str:
    """The extent to which two branches are the same, in a few words."""
    again = comparison.matches[1 if comparison.same else 0 :]
    met = f"{counted(len(again), 'match')}, {counted(sum(match.length for match in again), 'token')}"
    if comparison.same:
        return _same(comparison.same) + (f"; {met}" if again else "")
    return met if again else f"no further run of {LEAST} shared tokens"


# ---- its words ----------------------------------------------------------------------------------


def own_conditions(tree: SessionTree, comparison: Comparison) -> tuple[str, str]:
    """Conditions of left's own tokens that right's don't have, and the other way round; empty if there are none."""
    left, right = (side[comparison.shared :] for side in (comparison.left, comparison.right))
    made = by_token(tree, [*left, *right])
    parts = made[: len(left)], made[len(left) :]
    one, other = (dict.fromkeys(each for token in part for each in token) for part in parts)
    return (
        ", ".join(each.short for each in one if each not in other),
        ", ".join(each.short for each in other if each not in one),
    )


def lead(comparison: Comparison, tree: SessionTree) -> str:
    """The different conditions, and what they changed; empty if the two branches only differ in their tokens."""
    made, found = own_conditions(tree, comparison), comparison.changes
    sides = [f"{side.capitalize()}: {words}. " for words, side in zip(made, SIDES, strict=True) if words]
    differently = "".join(sides)
    if not comparison.same:
        return differently.rstrip()
    tokens = [side.tokens for side in comparison.totals]
    same = _same(comparison.same).removeprefix("the ").capitalize()
    longer = [side for side, own in zip(SIDES, tokens, strict=True) if own > comparison.same]
    if not sides and not longer and len(found) == comparison.same and not comparison.largest:
        return f"{same}, made in the same way, with the same probabilities: nothing differs."
    more = f", then {longer[0]} continues" if longer else ""
    if len(longer) > 1:
        more = ", then they diverge"
    return f"{differently or 'Made in the same way. '}{same}{more}{_probabilities(comparison)}"


def _probabilities(comparison: Comparison) -> str:
    if not comparison.changes:
        return "; their probabilities aren't known."
    if not (changed := comparison.largest):
        return "; their probabilities are the same, too."
    most = changed[0]
    if abs(most.prob) < LEAST_SEEN:
        return f"; their probabilities differ by less than {100 * LEAST_SEEN:g} %."
    where = f"that of {quoted_label(most.left)} most, at {numbered(most.left)}"
    change = change_words(most, divergence=False)
    return f", but their probabilities differ, {where}: {change}. {key_for('compare.largest')} goes there."


def change_words(change: TokenChange, divergence: bool) -> str:
    """A change in figures: `62.00 % → 41.00 % (KL at least 0.13 bits)`; or without the KL divergence."""
    assert change.left.prob is not None
    assert change.right.prob is not None
    least = f" (KL at least {bits(change.kl_bits)} bits)" if divergence and change.kl_bits is not None else ""
    return f"{percent(change.left.prob)} → {percent(change.right.prob)}{least}"
