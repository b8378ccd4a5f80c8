"""The rules of acceptance: each draws the model's own distribution, and accepts as often as it says."""

from __future__ import annotations

import numpy as np
import pytest

from engine.decoding.speculative import verify
from engine.decoding.speculative.verify import Drawn, Draws, Probs

COUNT = 100_000
SIZE = 8
LIMIT = 24.3
"""Chi-square of 7 degrees of freedom that one sound sample in a thousand exceeds."""


def pair(seed: int = 0, size: int = SIZE) -> tuple[Probs, Probs]:
    """A model's distribution and a draft's."""
    random = np.random.default_rng(seed)
    return random.dirichlet(np.full(size, 0.6)), random.dirichlet(np.full(size, 0.6))


def chi_square(p: Probs, taken: verify.Ids) -> float:
    expected = p * taken.size
    return float(((np.bincount(taken, minlength=p.size) - expected) ** 2 / expected).sum())


def without_residual(p: Probs, q: Probs, drafting: Draws, accepting: Draws, other: Draws) -> Drawn:
    """The mistake that is easily made: what takes the place of a refused token is drawn from p itself."""
    drafted = verify.inverted(q, drafting)
    accepted = accepting * q[drafted] < p[drafted]
    return Drawn(drafted, np.where(accepted, drafted, verify.inverted(p, other)), accepted)


RULES = {
    "position_draw": (verify.by_position_draw, 1),
    "rejection": (verify.by_rejection, 3),
    "match": (verify.by_match, 2),
}


@pytest.mark.parametrize("name", RULES)
def test_a_rule_draws_the_models_distribution_and_accepts_as_often_as_expected(name: str) -> None:
    (p, q), (draw, numbers) = pair(), RULES[name]
    random = np.random.default_rng(7)
    drawn = draw(p, q, *(random.random(COUNT) for _ in range(numbers)))  # type: ignore[operator]
    assert chi_square(p, drawn.taken) < LIMIT
    expected = getattr(verify.rates(p, q), name)
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
        found = verify.rates(p, q)
        assert max(found.position_draw, found.match) <= found.rejection + 1e-12
        assert verify.rates(p, p).position_draw == pytest.approx(1)
        assert verify.rates(p, p).rejection == pytest.approx(1)
    assert verify.fixed_rates(0.3).rejection == verify.rates(*_point(0.3)).rejection == pytest.approx(0.3)


def _point(share: float) -> tuple[Probs, Probs]:
    return np.array([share, 1 - share]), np.array([1.0, 0.0])


def test_a_large_vocabulary_is_compared_at_its_head_and_the_rate_is_hardly_lower(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    random = np.random.default_rng(3)
    logits = random.normal(0, 4, 5000)
    p, q = (np.exp(row) / np.exp(row).sum() for row in (logits, logits + random.normal(0, 0.5, 5000)))
    whole = verify.position_draw_rate(p, q)
    monkeypatch.setattr(verify, "HEAD", 1000)
    left_out = 1 - np.sort(p)[-1000:].sum()
    assert whole - left_out <= verify.position_draw_rate(p, q) <= whole
