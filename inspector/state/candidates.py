"""The candidates of a slot as tables list them: with the slot's own token, so that each column sums to 100 %."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec.structs import replace

from engine.protocol import Candidate, Distribution, PromptToken, Step
from inspector.scales import others_prob
from inspector.state.session_tree import Item

NOISE = 1e-5
"""Below this two probabilities are the same: a fifth of what half of the last digit is worth."""


def own_candidate(item: Item) -> Candidate | None:
    """A slot's token as a candidate; None if its probability isn't known."""
    if item.prob is None or item.logprob is None or item.rank is None:
        return None
    drawn = item.sampler_prob if isinstance(item, Step) else item.prob
    token = item.id, item.text, item.raw, item.special
    return Candidate(*token, item.logprob, item.prob, item.rank, drawn, None)


def with_own(distribution: Distribution, item: Item | None, tried: bool = False) -> Distribution:
    """A distribution with the slot's own token among its candidates, though it is less probable than those, since
    it was taken. The others are fewer by it.

    Args:
        distribution: Before the slot.
        item: The slot's token; None for a token that is to come.
        tried: Whether the distribution is of other settings than the token was taken with: then its probability after
            the sampler isn't known, NaN, and is among the others'.
    """
    own = own_candidate(item) if item is not None else None
    if own is None or any(each.id == own.id for each in distribution.candidates):
        return distribution
    drawn = 0.0 if tried else own.sampler_prob
    return replace(
        distribution,
        candidates=(*distribution.candidates, replace(own, sampler_prob=math.nan) if tried else own),
        others=max(0, distribution.others - 1),
        others_prob=max(0.0, distribution.others_prob - own.prob),
        others_sampler_prob=max(0.0, distribution.others_sampler_prob - drawn),
    )


def of_prompt(token: PromptToken) -> tuple[Sequence[Candidate], float]:
    """The candidates of a prompt's token, with its own among them, and the probability of all others together."""
    own = own_candidate(token)
    if not token.candidates or own is None or any(each.id == token.id for each in token.candidates):
        return token.candidates, others_prob(token)
    return (*token.candidates, own), max(0.0, others_prob(token) - own.prob)


def is_untouched(distribution: Distribution) -> bool:
    """True if the sampler leaves every probability as the model has it: two bars would be twins."""
    for each in distribution.candidates:
        if each.cut_by is not None or not abs(each.prob - each.sampler_prob) < NOISE:
            return False
    return abs(distribution.others_prob - distribution.others_sampler_prob) < NOISE
