"""The difference between two branches of the same tokens that were made differently, token by token. Pure.

Under interventions the same tokens are computed again, as a branch of their own: what differs then is not the text but
the probabilities. All numbers are those of the records; a divergence is of the candidates in them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set

from msgspec import Struct

from engine.protocol import Candidate, Step
from inspector.display import quoted, token_label
from inspector.keys import key_for
from inspector.scales import METRIC, bits, others_prob, percent, tiny
from inspector.state.conditions import TextCondition, by_token
from inspector.state.session_tree import Item, SessionTree
from inspector.tools.compare.comparison import Comparison, tokens_words

LEAST_SEEN = 0.00005
"""The smallest difference of two probabilities that their texts show."""


class TokenChange(Struct, frozen=True):
    """One token that both branches have after the same tokens: right less left."""

    place: int
    """Of its pair."""
    left: Item
    right: Item
    prob: float
    """Of its probability."""
    bits: float
    """Of its surprisal."""
    kl_bits: float | None
    """The least that the Kullback-Leibler divergence of the right distribution from the left one can be; None where
    candidates are missing."""


def changes(comparison: Comparison) -> tuple[TokenChange, ...]:
    """The tokens whose probabilities can be compared: the same, after the same ones, and both known.

    Args:
        comparison: Of two branches.
    """
    found = []
    for place in range(comparison.shared, comparison.shared + comparison.same):
        left, right = comparison.items(comparison.pairs[place])
        if left is None or right is None or left.prob is None or right.prob is None:
            continue
        before, after = (METRIC["surprisal"].value(item) for item in (left, right))
        differs = 0.0 if before is None or after is None or before == after else after - before
        found.append(
            TokenChange(place, left, right, right.prob - left.prob, differs, least_kl_bits(left, right))
        )
    return tuple(found)


def by_size(found: Sequence[TokenChange]) -> list[TokenChange]:
    """Changes of a probability, the largest first; those that are none left out."""
    return sorted((each for each in found if each.prob), key=lambda each: -abs(each.prob))


def least_kl_bits(left: Item, right: Item) -> float | None:
    """The least that KL(left || right) can be, in bits: of the candidates that both records list, and all other tokens
    taken as one.

    Args:
        left: A token.
        right: The same token after the same ones, computed differently.

    Returns:
        Never more than the divergence over the whole vocabulary; None where a side has no candidates.
    """
    (one, one_rest), (other, other_rest) = _listed(left), _listed(right)
    if not one or not other:
        return None
    both = one.keys() & other.keys()
    pairs = [(one[id].prob, other[id].prob) for id in both]
    pairs.append((_rest(one, one_rest, both), _rest(other, other_rest, both)))
    # a probability that float32 rounds to 0 would make a term endless: without it the sum is smaller still
    return max(0.0, math.fsum(p * math.log2(p / q) for p, q in pairs if p > 0 and q > 0))


def _rest(listed: Mapping[int, Candidate], others: float, both: Set[int]) -> float:
    """The probability of all tokens but those that both list."""
    return others + math.fsum(each.prob for id, each in listed.items() if id not in both)


def _listed(item: Item) -> tuple[dict[int, Candidate], float]:
    """The candidates of a token by id, and the probability of all others together."""
    if isinstance(item, Step):
        return {each.id: each for each in item.choice.candidates}, item.choice.others_prob
    return {each.id: each for each in item.candidates}, others_prob(item)


# ---- in words -----------------------------------------------------------------------------------


def apart(tree: SessionTree, comparison: Comparison) -> tuple[str, str]:
    """The conditions that only one side's own tokens were made with, of left and right; empty where there are none.

    Args:
        tree: Whose branches they are.
        comparison: Of the branches.
    """
    left, right = (side[comparison.shared :] for side in (comparison.left, comparison.right))
    made = by_token(tree, [*left, *right])
    one, other = _conditions(made[: len(left)]), _conditions(made[len(left) :])
    return _words(one, other), _words(other, one)


def _conditions(made: Sequence[Sequence[TextCondition]]) -> dict[TextCondition, None]:
    return dict.fromkeys(each for token in made for each in token)


def _words(own: dict[TextCondition, None], others: dict[TextCondition, None]) -> str:
    return ", ".join(each.short for each in own if each not in others)


def lead(comparison: Comparison, found: Sequence[TokenChange], made: tuple[str, str]) -> str:
    """What was made differently, and what that changed; empty where two branches differ in their tokens alone.

    Args:
        comparison: Of the branches.
        found: Its changes.
        made: The conditions of each side alone.
    """
    sides = [f"{words} on the {side}" for words, side in zip(made, ("left", "right"), strict=True) if words]
    differently = f"Made differently: {', '.join(sides)}. " if sides else ""
    if not comparison.same:
        return differently.rstrip()
    tokens = [side.tokens for side in comparison.totals]
    whole = tokens[0] == tokens[1] == comparison.same
    count = tokens_words(comparison.same)
    same = f"Same {count}" if min(tokens) == comparison.same else f"The first {count} are the same"
    longer = [side for side, own in zip(("left", "right"), tokens, strict=True) if own > comparison.same]
    more = (
        f", then the {longer[0]} one continues" if len(longer) == 1 else ", then they part" if longer else ""
    )
    if not sides and whole and len(found) == comparison.same and not any(each.prob for each in found):
        return f"{same}, made in the same way, with the same probabilities: nothing differs."
    way = differently or "Made in the same way. "
    return f"{way}{same}{more}{_probabilities(found)}"


def _probabilities(found: Sequence[TokenChange]) -> str:
    if not found:
        return "; their probabilities aren't known."
    changed = by_size(found)
    if not changed:
        return "; their probabilities are the same, too."
    most = changed[0]
    if abs(most.prob) < LEAST_SEEN:
        return f"; their probabilities differ by no more than {tiny(abs(most.prob))}."
    return (
        f", but their probabilities differ: largest at token {most.left.position + 1} {_label(most)}, "
        f"{change_words(most)}. {key_for('compare.largest')} goes there."
    )


def change_words(change: TokenChange, divergence: bool = True) -> str:
    """A change in figures: `62.00 % → 41.00 % (KL at least 0.13 bits)`; or without its divergence."""
    assert change.left.prob is not None
    assert change.right.prob is not None
    least = f" (KL at least {bits(change.kl_bits)} bits)" if divergence and change.kl_bits is not None else ""
    return f"{percent(change.left.prob)} → {percent(change.right.prob)}{least}"


def _label(change: TokenChange) -> str:
    item = change.left
    return quoted(token_label(item.text, item.raw))
