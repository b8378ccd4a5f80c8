"""From a row of logits to its readings: candidates, entropy, ranks. numpy alone.

The numbers are the model's own: float32 log-softmax of its logits, before any penalty or filter. The sampler's
probabilities are added to them and replace none.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from engine.model.tokens import Tokens
from engine.records import Candidate, Distribution, PromptToken
from engine.sampling.pipeline import Sampled
from engine.sampling.ranking import Row, rank_of, ranked

LN2 = math.log(2)


def entropy_bits(logprobs: Row) -> float:
    """Shannon entropy of a distribution given by its log-probabilities (vocabulary,), in bits: -sum p log2 p."""
    wide = logprobs[logprobs > -np.inf].astype(np.float64)
    return max(0.0, -float(np.dot(np.exp(wide), wide)) / LN2)


def entropy_of(probs: npt.NDArray[np.float64]) -> float:
    """Shannon entropy of a distribution given by its probabilities, shape (vocabulary,), in bits."""
    left = probs[probs > 0]
    return max(0.0, -float(np.dot(left, np.log(left))) / LN2)


def _ranks(values: list[float]) -> list[int]:
    """Ranks of values in falling order, ties sharing the lowest."""
    ranks: list[int] = []
    for place, value in enumerate(values):
        ranks.append(ranks[-1] if place and value == values[place - 1] else place + 1)
    return ranks


class RowReader:
    """Turns rows into records with the text of one model's tokens.

    Args:
        tokens: The model's tokenizer.
    """

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    def candidates(
        self, logprobs: Row, k: int, pending: bytes, sampled: Sampled | None
    ) -> tuple[Candidate, ...]:
        """The k most probable tokens, best first; the picked one is added where it is not among them.

        Args:
            logprobs: float32 log-probabilities, shape (vocabulary,).
            k: How many; more than the vocabulary means all.
            pending: Bytes of a character that the text before left unfinished.
            sampled: The sampler's result, None where nothing is drawn (in the prompt).
        """
        ids = ranked(logprobs, min(k, logprobs.size))
        listed = ids.tolist()
        values = logprobs[ids].tolist()
        ranks = _ranks(values)
        if sampled is not None and sampled.picked not in listed:
            listed.append(sampled.picked)
            values.append(float(logprobs[sampled.picked]))
            ranks.append(rank_of(logprobs, sampled.picked))
        final, cuts = _after(sampled, listed, values)
        return tuple(map(self._candidate, listed, values, ranks, final, cuts, [pending] * len(listed)))

    def chosen(
        self, logprobs: Row, ids: npt.NDArray[np.intp], pending: bytes, sampled: Sampled
    ) -> tuple[Candidate, ...]:
        """The given tokens as candidates, in their order.

        Args:
            logprobs: float32 log-probabilities, shape (vocabulary,).
            ids: Token ids, shape (tokens,).
            pending: Bytes of a character that the text before left unfinished.
            sampled: The sampler's result.
        """
        listed, values = ids.tolist(), logprobs[ids]
        above = logprobs.size - np.searchsorted(np.sort(logprobs), values, side="right")
        final, cuts = _after(sampled, listed, values.tolist())
        return tuple(
            map(
                self._candidate, listed, values.tolist(), (above + 1).tolist(), final, cuts,
                [pending] * len(listed),
            )
        )  # fmt: skip

    def _candidate(
        self, token: int, logprob: float, rank: int, final: float, cut: str | None, pending: bytes
    ) -> Candidate:
        tokens = self._tokens
        text = tokens.text(token, pending)[0]
        special = tokens.is_special(token)
        return Candidate(
            token, text, tokens.raw(token), special, logprob, math.exp(logprob), rank, final, cut
        )  # positional arguments: this runs for every candidate of every step

    def distribution(
        self, node: int, position: int, logprobs: Row, sampled: Sampled, k: int, pending: bytes, reroll: int
    ) -> Distribution:
        """The model's distribution after a node, and what the sampler makes of it."""
        candidates = self.candidates(logprobs, k, pending, sampled)
        others = logprobs.size - len(candidates)
        return Distribution(
            node=node,
            position=position,
            candidates=candidates,
            entropy_bits=entropy_bits(logprobs),
            sampler_entropy_bits=entropy_of(sampled.probs),
            others=others,
            others_prob=max(0.0, 1.0 - sum(candidate.prob for candidate in candidates)) if others else 0.0,
            others_sampler_prob=_others_mass(sampled, candidates),
            stages=sampled.readings,
            picked=sampled.picked,
            draw=sampled.draw,
            draw_from=sampled.draw_from,
            draw_to=sampled.draw_to,
            reroll=reroll,
        )

    def echo(self, token: PromptToken, logprobs: Row, k: int, pending: bytes) -> PromptToken:
        """A prompt token with the model's readings of it.

        Args:
            token: The token, without readings.
            logprobs: The model's log-probabilities at its position, float32, shape (vocabulary,).
            k: Candidates to record.
            pending: Bytes that the text before left unfinished.
        """
        logprob = float(logprobs[token.id])
        return replace(
            token,
            logprob=logprob,
            prob=math.exp(logprob),
            rank=rank_of(logprobs, token.id),
            entropy_bits=entropy_bits(logprobs),
            candidates=self.candidates(logprobs, k, pending, None),
        )


def _after(
    sampled: Sampled | None, ids: list[int], logprobs: list[float]
) -> tuple[list[float], list[str | None]]:
    """For some ids, the probability after the sampler, and the stage that cut the token."""
    if sampled is None:
        return [math.exp(value) for value in logprobs], [None] * len(ids)
    names = (*sampled.names, None)  # -1, not cut, is the last
    return sampled.probs[ids].tolist(), [names[cut] for cut in sampled.cut[ids].tolist()]


def _others_mass(sampled: Sampled, candidates: tuple[Candidate, ...]) -> float:
    """What the sampler may draw beyond the candidates: exactly 0 where it kept no other token."""
    drawable = sum(candidate.sampler_prob > 0 for candidate in candidates)
    if drawable == np.count_nonzero(sampled.probs):
        return 0.0
    return max(0.0, 1.0 - sum(candidate.sampler_prob for candidate in candidates))
