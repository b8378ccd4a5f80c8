"""The candidates of a slot: the one or two tokens with compared logits, and all of them as tables list them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Self

from msgspec import Struct
from msgspec.structs import replace

from engine.protocol import Candidate, Distribution, PromptToken, Step
from inspector.display import token_label, visible
from inspector.scales import others_prob, percent
from inspector.state.session_tree import Item
from inspector.state.timeline import Timeline

# ---- the tokens whose logits are compared -------------------------------------------------------


def ranked(timeline: Timeline) -> tuple[int, ...]:
    """The tokens that can be explained in the selected slot: the one that was taken, then the candidates by rank."""
    best = [candidate.id for candidate in sorted(timeline.candidates, key=lambda each: each.rank)]
    taken = [timeline.taken] if timeline.taken is not None else []
    return tuple(dict.fromkeys([*taken, *best]))


def compared(timeline: Timeline, token: int | None = None, against: int | None = None) -> tuple[int, ...]:
    """The two tokens whose logits are compared in the selected slot.

    Args:
        timeline: Has the candidates of the slot.
        token: The first token; None for the one that was taken or that the sampler picked.
        against: The second token, different from the first; None for the best other candidate.

    Returns:
        Two ids; one if no other candidate is known, empty if no token is known.
    """
    if token is None:
        token = next((id for id in ranked(timeline) if id != against), None)
    if token is None:
        return ()
    if against is None:
        best = sorted(timeline.candidates, key=lambda each: each.rank)
        against = next((each.id for each in best if each.id != token), None)
    return (token,) if against is None else (token, against)


def told_here(timeline: Timeline, tokens: Sequence[int]) -> set[int]:
    """The explained tokens whose explanation belongs to the selected slot: its own token if it is among them, or else
    the candidates that no branch took there.

    Args:
        timeline: Has the tree.
        tokens: Ids of the explained tokens.
    """
    if (own := timeline.taken) is not None and own in tokens:
        return {own}
    return {each for each in tokens if timeline.tree.taken_by(timeline.before, each) is None}


class TokenChoices(Struct):
    """The one or two tokens that a view explains in a slot, remembered while the view is closed."""

    place: tuple[int, int | None] | None = None
    """Node before the slot in which tokens were chosen, and the slot's token id: other slots have the defaults."""
    token: int | None = None
    """The token whose logit is explained; None for the one that was taken."""
    against: int | None = None
    """The token that it is compared with; None for the best other candidate."""
    alone: bool = False
    """True to explain the token's logit without comparing it."""

    def at(self, timeline: Timeline) -> Self:
        """These choices, with the tokens reset if they were chosen in another slot or for another token in it."""
        if (place := (timeline.before, timeline.taken)) != self.place:
            self.place, self.token, self.against = place, None, None
        return self

    def begin(self, timeline: Timeline, highlighted: Candidate | None) -> Self:
        """These choices in the selected slot, compared with the highlighted candidate if that is a different token."""
        self.at(timeline)
        if highlighted is not None and highlighted.id not in compared(timeline)[:1]:
            self.against = highlighted.id
        return self

    def tokens(self, timeline: Timeline) -> tuple[int, ...]:
        """The token whose logit is explained, and the one that it is compared with, if any."""
        tokens = compared(timeline, self.token, self.against)
        return tokens[:1] if self.alone else tokens

    def follow_other(self, timeline: Timeline, by: int) -> None:
        """Explain the logit of another candidate, `by` places away; the token it is compared with stays if it can."""
        tokens = self.tokens(timeline)
        others = [id for id in ranked(timeline) if self.alone or id not in tokens[1:]]
        if tokens and others:
            if not self.alone and len(tokens) == 2:
                self.against = tokens[1]
            self.token = _next(others, tokens[0], by)

    def compare_with(self, timeline: Timeline, by: int) -> None:
        """Compare with another candidate, `by` places away."""
        self.alone = False
        tokens = self.tokens(timeline)
        if others := [id for id in ranked(timeline) if id not in tokens[:1]]:
            self.token, self.against = tokens[0], _next(others, tokens[-1], by)


def _next(ids: Sequence[int], now: int, by: int) -> int:
    return ids[(ids.index(now) + by) % len(ids)] if now in ids else ids[0]


def label_of(timeline: Timeline, id: int, known: Iterable[tuple[int, str]] = ()) -> str:
    """The label of a token that could come in the selected slot; printable.

    Args:
        timeline: Has the candidates of the slot.
        id: Id of the token.
        known: Ids and texts of other tokens.
    """
    texts = {id: token_label(text) for id, text in known}
    texts |= {each.id: token_label(each.text, each.raw) for each in timeline.candidates}
    if (selected := timeline.selected) is not None:
        texts[selected.id] = token_label(selected.text, selected.raw)
    return texts.get(id, f"token {id}")


# ---- as tables list them: with the slot's own token, so that each column adds up to 100 % -------


def after_sampler(candidate: Candidate) -> str:
    """A candidate's probability after the sampler, or the stage that cut it (greedy cuts nothing); printable.

    A dot if the probability isn't known: for the slot's own token if it isn't among the recorded candidates.
    """
    if candidate.cut_by not in (None, "greedy"):
        return visible(candidate.cut_by or "")
    return "·" if math.isnan(candidate.sampler_prob) else percent(candidate.sampler_prob)


NOISE = 1e-5
"""Two probabilities that differ by less count as equal: a fifth of half a unit in the last digit shown."""


def own_candidate(item: Item) -> Candidate | None:
    """A slot's token as a candidate; None if its probability isn't known."""
    if item.prob is None or item.logprob is None or item.rank is None:
        return None
    drawn = item.sampler_prob if isinstance(item, Step) else item.prob
    token = item.id, item.text, item.raw, item.special
    return Candidate(*token, item.logprob, item.prob, item.rank, drawn, None)


def with_own(distribution: Distribution, item: Item | None, tried: bool = False) -> Distribution:
    """A distribution with the slot's own token among its candidates, and subtracted from the others.

    Args:
        distribution: The distribution before the slot.
        item: The slot's token; None for the token to come.
        tried: Whether the distribution was computed with other settings than the token was taken with: its probability
            after the sampler is then not known (NaN), and stays part of the others'.
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
    """The candidates in the slot of a prompt's token, the token among them, and the probability of all others."""
    choice = choice_of(token)
    return choice.candidates, choice.others_prob


def choice_of(item: Item, vocabulary: int = 0) -> Distribution:
    """The distribution that a token was taken from, with the token among the candidates; in a prompt, where nothing is
    drawn, the distribution that the model predicted there.

    Args:
        item: The token; the result for a prompt's token without candidates has none either.
        vocabulary: Number of tokens in the vocabulary; 0 if unknown.
    """
    if isinstance(item, Step):
        return with_own(item.choice, item)
    candidates, mass = item.candidates, others_prob(item)
    others = max(0, vocabulary - len(candidates))
    place = item.node, item.position, candidates, math.nan, math.nan
    expected = Distribution(*place, others, mass, mass, (), item.id, None, None, None, 0)
    return with_own(expected, item) if candidates else expected


def is_untouched(distribution: Distribution) -> bool:
    """True if the sampler changes no probability of the model: a second bar would show the same."""
    for each in distribution.candidates:
        if each.cut_by is not None or not abs(each.prob - each.sampler_prob) < NOISE:
            return False
    return abs(distribution.others_prob - distribution.others_sampler_prob) < NOISE
