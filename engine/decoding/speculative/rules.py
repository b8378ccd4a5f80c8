"""Three rules by which a drafted token is accepted: how often each accepts, and each as a draw. Pure numpy.

p is the distribution that the model draws from, q the draft's, both after the sampler. Each rule gives tokens
distributed as p, so they differ in how often they accept alone:

- position draw, the rule in force: one number u in [0, 1) a position. Drafter and target each invert their cumulative
  distribution at u, most probable token first. Accepted where both fall on the same token: the length of u in the
  intervals of that token in both, summed over tokens.
- rejection (Leviathan, Kalman, Matias 2023, arXiv:2211.17192, algorithm 1): d from q is accepted with probability
  min(1, p(d)/q(d)); else a token from the residual max(0, p - q), normalized. Accepted: sum of min(p, q), which no rule
  exceeds.
- match (mlx_lm.generate.speculative_generate_step): d from q, t from p, independent; accepted where d = t. Accepted:
  sum of p q.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from engine.protocol import AcceptanceRates
from engine.sampling.ranking import ranked, sum_of_products

Probs = npt.NDArray[np.float64]
"""A distribution, shape (vocabulary,); sums to 1."""
Draws = npt.NDArray[np.float64]
"""Independent uniform numbers in [0, 1), shape (n,)."""
Ids = npt.NDArray[np.intp]

HEAD = 8192
"""Tokens whose intervals are compared: ordering 150,000 of them takes 25 ms, these 3. The rest of both distributions is
not counted, so that the rate is too low by at most their probability; of smaller vocabularies nothing is left out."""


class Drawn(NamedTuple):
    """Tokens drawn by a rule, shape (n,) each."""

    drafted: Ids
    taken: Ids
    accepted: npt.NDArray[np.bool_]


# ---- how often each accepts ----------------------------------------------------------------------


def rates(p: Probs, q: Probs) -> AcceptanceRates:
    """The probability that a token drafted from q is accepted, by each rule."""
    return AcceptanceRates(position_draw_rate(p, q), float(np.minimum(p, q).sum()), sum_of_products(p, q))


def fixed_rates(p: float) -> AcceptanceRates:
    """As `rates`, of a draft that proposes one token whatever is drawn.

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
    """Where each token's share of the cumulative distribution begins and ends; empty outside of `HEAD`."""
    order = ranked(probs, min(HEAD, probs.size))
    begin, end = np.zeros(probs.size), np.zeros(probs.size)
    end[order] = np.cumsum(probs[order])
    begin[order] = end[order] - probs[order]
    return begin, end


# ---- each as a draw ------------------------------------------------------------------------------


def by_position_draw(p: Probs, q: Probs, draws: Draws) -> Drawn:
    """Drafter and target draw with the same number."""
    drafted, taken = inverted(q, draws), inverted(p, draws)
    return Drawn(drafted, taken, drafted == taken)


def by_rejection(p: Probs, q: Probs, drafting: Draws, accepting: Draws, residual: Draws) -> Drawn:
    """Rejection with the residual; three numbers a token."""
    drafted = inverted(q, drafting)
    accepted = accepting * q[drafted] < p[drafted]
    rest = np.maximum(p - q, 0.0)
    other = inverted(rest / rest.sum(), residual) if rest.any() else drafted
    return Drawn(drafted, np.where(accepted, drafted, other), accepted)


def by_match(p: Probs, q: Probs, drafting: Draws, taking: Draws) -> Drawn:
    """Drafter and target draw with numbers of their own."""
    drafted, taken = inverted(q, drafting), inverted(p, taking)
    return Drawn(drafted, taken, drafted == taken)


def inverted(probs: Probs, draws: Draws) -> Ids:
    """The tokens at some places of the cumulative distribution, most probable first, as the sampler's draw."""
    order = ranked(probs, probs.size)
    places = np.searchsorted(np.cumsum(probs[order]), draws, side="right")
    return order[np.minimum(places, int(np.flatnonzero(probs[order])[-1]))]
