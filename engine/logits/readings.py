"""From a row of logits to its readings: candidates, entropy, ranks. numpy alone.

The numbers are the model's own: float32 log-softmax of its logits, before any penalty or filter. The sampler's
probabilities are added to them and replace none. Order and ranks go by the logits: logprobs are rounded, and two that
differ may become one.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from engine.logits.token_texts import TokenTexts
from engine.protocol import Candidate, Distribution, GrammarReading, PromptToken
from engine.sampling.pipeline import Sampled
from engine.sampling.ranking import Row, log_softmax, rank_of, ranked, sum_of_products

LN2 = math.log(2)
SAMPLERS_BEST = 5
"""Candidates that a grammar's distribution has besides the model's own: as a rule it cuts all of these but one or two.
On a vocabulary of 150,000 that takes 0.6 to 0.8 ms where up to 3,000 tokens are kept, 3.4 ms where all are."""


def entropy_bits(logprobs: Row) -> float:
    """Shannon entropy of a distribution given by its log-probabilities (vocabulary,), in bits: -sum p log2 p."""
    return _entropy_bits(np.exp(logprobs, dtype=np.float64), logprobs)


def _entropy_bits(probs: npt.NDArray[np.float64], logprobs: Row) -> float:
    wide = logprobs.astype(np.float64)
    if wide.min() == -np.inf:
        live = wide > -np.inf
        probs, wide = probs[live], wide[live]
    return max(0.0, -sum_of_products(probs, wide) / LN2)


def entropy_of(probs: npt.NDArray[np.float64]) -> float:
    """Shannon entropy of a distribution given by its probabilities, shape (vocabulary,), in bits."""
    left = probs[probs > 0]
    return max(0.0, -sum_of_products(left, np.log(left)) / LN2)


def _ranks(values: list[float]) -> list[int]:
    """Ranks of values in falling order, ties sharing the lowest."""
    ranks: list[int] = []
    for place, value in enumerate(values):
        ranks.append(ranks[-1] if place and value == values[place - 1] else place + 1)
    return ranks


class RowReader:
    """Turns rows into records with the text of one model's tokens.

    Args:
        tokens: The bytes and texts of the model's tokens.
    """

    def __init__(self, tokens: TokenTexts) -> None:
        self._tokens = tokens

    def candidates(
        self, logits: Row, logprobs: Row, k: int, pending: bytes, sampled: Sampled | None, best: int = 0
    ) -> tuple[Candidate, ...]:
        """The k most probable tokens, best first; then the sampler's best and the picked one, where they are others.

        Args:
            logits: The model's, float32, shape (vocabulary,).
            logprobs: Their log-softmax, same shape and dtype.
            k: How many; more than the vocabulary means all.
            pending: Bytes of a character that the text before left unfinished.
            sampled: The sampler's result, None where nothing is drawn (in the prompt).
            best: Most probable tokens of the sampler's that are listed too.
        """
        ids = ranked(logits, min(k, logits.size))
        listed = ids.tolist()
        values = logprobs[ids].tolist()
        ranks = _ranks(logits[ids].tolist())
        for token in _samplers(sampled, best) if sampled is not None else ():
            if token not in listed:
                listed.append(token)
                values.append(float(logprobs[token]))
                ranks.append(rank_of(logits, token))
        final, cuts = _after(sampled, listed, values)
        return tuple(map(self._candidate, listed, values, ranks, final, cuts, [pending] * len(listed)))

    def chosen(
        self, logits: Row, logprobs: Row, ids: npt.NDArray[np.intp], pending: bytes, sampled: Sampled | None
    ) -> tuple[Candidate, ...]:
        """The given tokens as candidates, in their order.

        Args:
            logits: The model's, float32, shape (vocabulary,).
            logprobs: Their log-softmax, same shape and dtype.
            ids: Token ids, shape (tokens,).
            pending: Bytes of a character that the text before left unfinished.
            sampled: The sampler's result, None where nothing is drawn.
        """
        listed, values = ids.tolist(), logprobs[ids]
        above = logits.size - np.searchsorted(np.sort(logits), logits[ids], side="right")
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
        self,
        node: int,
        position: int,
        logits: Row,
        logprobs: Row,
        sampled: Sampled,
        k: int,
        pending: bytes,
        reroll: int,
        grammar: GrammarReading | None = None,
    ) -> Distribution:
        """The model's distribution after a node, and what the sampler makes of it."""
        best = min(k, SAMPLERS_BEST) if grammar is not None else 0
        candidates = self.candidates(logits, logprobs, k, pending, sampled, best)
        probs = np.exp(logprobs, dtype=np.float64)
        return Distribution(
            node=node,
            position=position,
            candidates=candidates,
            entropy_bits=_entropy_bits(probs, logprobs),
            sampler_entropy_bits=entropy_of(sampled.probs),
            others=logits.size - len(candidates),
            others_prob=_others_mass(probs, candidates),
            others_sampler_prob=_others_mass(sampled.probs, candidates),
            stages=sampled.readings,
            picked=sampled.picked,
            draw=sampled.draw,
            draw_from=sampled.draw_from,
            draw_to=sampled.draw_to,
            reroll=reroll,
            grammar=grammar,
        )

    def echo(self, token: PromptToken, logits: Row, k: int, pending: bytes) -> PromptToken:
        """A prompt token with the model's readings of it.

        Args:
            token: The token, without readings.
            logits: The model's at its position, float32, shape (vocabulary,).
            k: Candidates to record.
            pending: Bytes that the text before left unfinished.
        """
        logprobs = log_softmax(logits)
        probs, logprob = np.exp(logprobs, dtype=np.float64), float(logprobs[token.id])
        candidates = self.candidates(logits, logprobs, k, pending, None)
        return replace(
            token,
            logprob=logprob,
            prob=math.exp(logprob),
            rank=rank_of(logits, token.id),
            entropy_bits=_entropy_bits(probs, logprobs),
            candidates=candidates,
            others_prob=_others_mass(probs, candidates),
        )


def _samplers(sampled: Sampled, best: int) -> list[int]:
    """The sampler's most probable tokens, as many as it keeps, and the picked one."""
    kept = ranked(sampled.probs, best) if best else np.empty(0, np.intp)
    return [*kept[sampled.probs[kept] > 0].tolist(), sampled.picked]


def _after(
    sampled: Sampled | None, ids: list[int], logprobs: list[float]
) -> tuple[list[float], list[str | None]]:
    """For some ids, the probability after the sampler, and the stage that cut the token."""
    if sampled is None:
        return [math.exp(value) for value in logprobs], [None] * len(ids)
    names = (*sampled.names, None)  # -1, not cut, is the last
    return sampled.probs[ids].tolist(), [names[cut] for cut in sampled.cut[ids].tolist()]


def _others_mass(probs: npt.NDArray[np.float64], candidates: tuple[Candidate, ...]) -> float:
    """What the tokens beyond the candidates have together: summed, since 1 less the sum of these is mostly rounding."""
    ids = [candidate.id for candidate in candidates]
    own = probs[ids]
    probs[ids] = 0.0
    mass = float(probs.sum())
    probs[ids] = own  # in place and back: copying 150,000 would cost more than the sum
    return mass
