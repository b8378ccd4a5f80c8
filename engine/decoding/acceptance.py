"""Acceptance of drafted tokens: how often each of three rules accepts.

p is the distribution that the model draws from, q the draft's, both after the sampler. Each rule gives tokens
distributed as p, so they differ only in how often they accept:

- position draw, the rule in force: one number u in [0, 1) a position. Drafter and target each invert their cumulative
  distribution at u, most probable token first. Accepted if both fall on the same token: the length of u in the
  intervals of that token in both, summed over tokens.
- rejection (Leviathan, Kalman, Matias 2023, arXiv:2211.17192, algorithm 1): d from q is accepted with probability
  min(1, p(d)/q(d)); else a token from the residual max(0, p - q), normalized. Accepted: sum of min(p, q), which no rule
  exceeds.
- match (mlx_lm.generate.speculative_generate_step): d from q, t from p, independent; accepted if d = t. Accepted:
  sum of p q.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.protocol import AcceptanceRates
from engine.sampling.ranking import ranked, sum_of_products

Probs = npt.NDArray[np.float64]
"""A distribution, shape (vocabulary,); sums to 1."""

HEAD = 8192
"""Tokens whose intervals are compared: ordering 150,000 of them takes 25 ms, these 3. The rest of both distributions is
not counted, so that the rate is too low by at most their probability; of smaller vocabularies nothing is left out."""


def rates(p: Probs, q: Probs) -> AcceptanceRates:
    """The probability that a token drafted from q is accepted, by each rule."""
    return AcceptanceRates(position_draw_rate(p, q), float(np.minimum(p, q).sum()), sum_of_products(p, q))


def fixed_rates(p: float) -> AcceptanceRates:
    """The same for a draft that proposes one token whatever is drawn.

    Args:
        p: The model's probability of that token.
    """
    return AcceptanceRates(p, p, p)


def position_draw_rate(p: Probs, q: Probs) -> float:
    """The length of [0, 1) in which both distributions have the same token, each most probable token first."""
    (p_begin, p_end), (q_begin, q_end) = _intervals(p), _intervals(q)
    both = np.minimum(p_end, q_end) - np.maximum(p_begin, q_begin)
    return float(np.maximum(both, 0.0).sum())


def _intervals(probs: Probs) -> tuple[Probs, Probs]:
    """The begin and end of each token's share of the cumulative distribution; empty outside of `HEAD`."""
    order = ranked(probs, min(HEAD, probs.size))
    begin, end = np.zeros(probs.size), np.zeros(probs.size)
    end[order] = np.cumsum(probs[order])
    begin[order] = end[order] - probs[order]
    return begin, end
