"""The rules of acceptance: each draws the model's own distribution, and accepts as often as it says."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from engine.decoding import speculation as acceptance
from engine.logits.node_sampler import Wide as Probs
from engine.sampling.ranking import ranked

Draws = npt.NDArray[np.float64]
"""Independent uniform numbers in [0, 1), shape (n,)."""
Ids = npt.NDArray[np.intp]


class Drawn(NamedTuple):
    """Tokens drawn by a rule, shape (n,) each."""

    drafted: Ids
    taken: Ids
    accepted: npt.NDArray[np.bool_]


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


COUNT = 100_000
SIZE = 8
LIMIT = 24.3
"""Chi-square of 7 degrees of freedom that one sound sample in a thousand exceeds."""


def pair(seed: int = 0, size: int = SIZE) -> tuple[Probs, Probs]:
    """A model's distribution and a draft's."""
    random = np.random.default_rng(seed)
    return random.dirichlet(np.full(size, 0.6)), random.dirichlet(np.full(size, 0.6))


def chi_square(p: Probs, taken: Ids) -> float:
    expected = p * taken.size
    return float(((np.bincount(taken, minlength=p.size) - expected) ** 2 / expected).sum())


def without_residual(p: Probs, q: Probs, drafting: Draws, accepting: Draws, other: Draws) -> Drawn:
    """The mistake that is easily made: what takes the place of a refused token is drawn from p itself."""
    drafted = inverted(q, drafting)
    accepted = accepting * q[drafted] < p[drafted]
    return Drawn(drafted, np.where(accepted, drafted, inverted(p, other)), accepted)


RULES = {"position_draw": (by_position_draw, 1), "rejection": (by_rejection, 3), "match": (by_match, 2)}


@pytest.mark.parametrize("name", RULES)
def test_a_rule_draws_the_models_distribution_and_accepts_as_often_as_expected(name: str) -> None:
    (p, q), (draw, numbers) = pair(), RULES[name]
    random = np.random.default_rng(7)
    drawn = draw(p, q, *(random.random(COUNT) for _ in range(numbers)))  # type: ignore[operator]
    assert chi_square(p, drawn.taken) < LIMIT
    expected = getattr(acceptance.rates(p, q), name)
    assert drawn.accepted.mean() == pytest.approx(expected, abs=5 * (0.25 / COUNT) ** 0.5)
    assert (drawn.drafted == drawn.taken)[drawn.accepted].all()


def test_rejection_without_the_residual_draws_another_distribution() -> None:
    p, q = pair()
    random = np.random.default_rng(7)
    drawn = without_residual(p, q, *(random.random(COUNT) for _ in range(3)))
    assert chi_square(p, drawn.taken) > 100 * LIMIT


def test_no_rule_accepts_more_than_rejection_and_equal_distributions_are_always_accepted() -> None:
    for seed in range(40):
        p, q = pair(seed, 50)
        found = acceptance.rates(p, q)
        assert max(found.position_draw, found.match) <= found.rejection + 1e-12
        assert acceptance.rates(p, p).position_draw == pytest.approx(1)
        assert acceptance.rates(p, p).rejection == pytest.approx(1)
    equal = acceptance.rates(*_point(0.3))  # a draft that proposes one token whatever is drawn
    assert [equal.position_draw, equal.rejection, equal.match] == pytest.approx([0.3] * 3)


def _point(share: float) -> tuple[Probs, Probs]:
    return np.array([share, 1 - share]), np.array([1.0, 0.0])


def test_a_large_vocabulary_is_compared_at_its_head_and_the_rate_is_hardly_lower(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    random = np.random.default_rng(3)
    logits = random.normal(0, 4, 5000)
    p, q = (np.exp(row) / np.exp(row).sum() for row in (logits, logits + random.normal(0, 0.5, 5000)))
    whole = acceptance.position_draw_rate(p, q)
    monkeypatch.setattr(acceptance, "HEAD", 1000)
    left_out = 1 - np.sort(p)[-1000:].sum()
    assert whole - left_out <= acceptance.position_draw_rate(p, q) <= whole
