"""KL and entropy in float64, against sums written out."""

from __future__ import annotations

import math

import numpy as np
import pytest

from engine.errors import StepError
from engine.lockstep.spans import entropy_bits, kl_nats, logprobs_of


def written_out(one: list[float], other: list[float]) -> float:
    """KL(P||Q) of two rows of logits, number by number."""
    totals = [math.fsum(math.exp(value) for value in row) for row in (one, other)]
    pairs = [(math.exp(a) / totals[0], math.exp(b) / totals[1]) for a, b in zip(one, other, strict=True)]
    return math.fsum(p * math.log(p / q) for p, q in pairs if p)


@pytest.mark.parametrize("scale", [0.01, 1.0, 8.0])
def test_kl_is_the_sum_over_all_tokens(scale: float) -> None:
    random = np.random.default_rng(3)
    for _ in range(20):
        one, other = (random.normal(0, scale, 500).astype(np.float32) for _ in range(2))
        expected = written_out(one.tolist(), other.tolist())
        assert kl_nats(logprobs_of(one), logprobs_of(other)) == pytest.approx(expected, rel=1e-9, abs=1e-14)


def test_equal_rows_have_none_at_all_and_rounding_gives_no_negative_one() -> None:
    random = np.random.default_rng(4)
    rows = [random.normal(0, 5, 4096).astype(np.float32) for _ in range(50)]
    assert all(kl_nats(logprobs_of(row), logprobs_of(row.copy())) == 0 for row in rows)
    assert all(kl_nats(logprobs_of(row), logprobs_of(row + np.float32(1e-6))) >= 0 for row in rows)


def test_what_only_the_second_bars_is_infinitely_far() -> None:
    row = np.array([1, 2, 3], np.float32)
    barred = np.array([1, 2, -np.inf], np.float32)
    assert kl_nats(logprobs_of(row), logprobs_of(barred)) == math.inf
    assert kl_nats(logprobs_of(barred), logprobs_of(row)) == pytest.approx(
        written_out([1, 2, -math.inf], [1, 2, 3])
    )
    assert entropy_bits(logprobs_of(barred)) == pytest.approx(0.8399, abs=1e-4)
    assert entropy_bits(logprobs_of(np.zeros(8, np.float32))) == pytest.approx(3)


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(StepError, match="not numbers"):
        logprobs_of(np.array([1, np.nan], np.float32))
