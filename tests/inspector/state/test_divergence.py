"""The figures of two models over one text, against numpy and the formulas of llama.cpp's perplexity tool."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import LockstepSpan
from inspector.cli.writers.diff import Bounds, judge
from inspector.state.second_model import Divergences, mean, percentile


def span(logprob: float | None, other: float | None, kl: float | None, same: bool = True) -> LockstepSpan:
    scored = int(logprob is not None)
    return LockstepSpan(
        -1, 0, 1, 1, "ab", b"ab", logprob, other, scored, scored, 1.0, 1.0, kl, 1 if scored else None,
        2 if scored else None, same if scored else None,
    )  # fmt: skip


def figures(count: int = 400) -> tuple[Divergences, np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(1)
    one = -random.exponential(2, count)
    other = np.minimum(one + random.normal(0, 0.3, count), -1e-6)
    kl = random.exponential(0.1, count)
    values = zip(one, other, kl, strict=True)
    spans = [span(*each, bool(place % 4)) for place, each in enumerate(values)]
    return Divergences([span(None, None, None), *spans]), one, other, kl


def test_means_have_the_standard_error_of_a_mean() -> None:
    values = np.random.default_rng(2).normal(3, 2, 50)
    assert mean(values.tolist()).value == pytest.approx(values.mean())
    assert mean(values.tolist()).error == pytest.approx(values.std(ddof=1) / math.sqrt(50))
    assert mean([4.0]).error == 0
    assert mean([1.0, math.inf]).value == math.inf


@pytest.mark.parametrize("share", [0, 0.001, 0.1, 0.5, 0.99, 1])
def test_percentiles_are_those_of_numpy(share: float) -> None:
    values = sorted(np.random.default_rng(3).exponential(1, 77).tolist())
    assert percentile(values, share) == pytest.approx(np.percentile(values, 100 * share))
    assert percentile([1.0, math.inf, math.inf], 0.75) == math.inf


def test_perplexities_their_ratio_and_its_error() -> None:
    made, one, other, _ = figures()
    theirs, mine = made.perplexities
    assert (mine.value, theirs.value) == pytest.approx((math.exp(-one.mean()), math.exp(-other.mean())))
    assert mine.error == pytest.approx(mine.value * one.std(ddof=1) / 20)
    assert made.correlation == pytest.approx(np.corrcoef(one, other)[0, 1])
    change = one - other
    assert (made.log_ratio.value, made.log_ratio.error) == pytest.approx(
        (change.mean(), change.std(ddof=1) / 20)
    )
    assert made.ratio.value == pytest.approx(theirs.value / mine.value)
    # what llama.cpp computes it from: both errors and the covariance of the means
    covariance = np.cov(one, other)[0, 1] / 400
    squared = theirs.error**2 + mine.error**2 - 2 * theirs.value * mine.value * covariance
    assert made.perplexity_change.error == pytest.approx(math.sqrt(squared))
    assert made.log_ratio.error == pytest.approx(
        math.sqrt(np.cov(one)[()] / 400 + np.cov(other)[()] / 400 - 2 * covariance)
    )


def test_probabilities_tops_and_bytes() -> None:
    made, one, other, kl = figures()
    change = np.exp(other) - np.exp(one)
    assert made.changes == pytest.approx(change)
    assert made.rms_change.value == pytest.approx(math.sqrt((change**2).mean()))
    assert made.rms_change.error == pytest.approx((change**2).std(ddof=1) / 20 / 2 / made.rms_change.value)
    assert (made.same_top.value, made.same_top.error) == pytest.approx((0.75, math.sqrt(0.75 * 0.25 / 399)))
    assert made.kl == pytest.approx(kl / math.log(2)), "in bits, as everywhere"
    first, second, less = made.bits_per_byte
    assert first.value == pytest.approx(-one.sum() / math.log(2) / 800)
    assert less.value == pytest.approx(second.value - first.value)
    assert made.totals == pytest.approx((one.sum(), other.sum()))
    assert made.scored == (400, 400)


def test_equal_models_have_no_spread_to_divide_by() -> None:
    made = Divergences([span(-1.0, -1.0, 0.0)] * 3)
    assert (made.correlation, made.rms_change.value, made.rms_change.error) == (None, 0, 0)
    assert (made.ratio.value, made.ratio.error, made.perplexity_change.error) == (1, 0, 0)


# ---- the gate ---------------------------------------------------------------------------------


def figures_of(kl: list[float], tops: list[bool], logprobs: list[tuple[float, float]]) -> Divergences:
    made = Divergences([])
    made.kl, made.tops = kl, tops
    made.logprobs, made.other_logprobs = [a for a, _ in logprobs], [b for _, b in logprobs]
    made.changes = [math.exp(b) - math.exp(a) for a, b in logprobs]
    return made


@given(
    st.lists(st.floats(0, 5), min_size=2, max_size=30),
    st.floats(0, 5),
)
def test_a_verdict_is_the_sign_of_the_distance_in_standard_errors(kl: list[float], bound: float) -> None:
    (judged,) = judge(Bounds(max_kld=bound), figures_of(kl, [], []), complete=True)
    middle = statistics.fmean(kl)
    error = statistics.stdev(kl) / math.sqrt(len(kl))
    assert judged.value is not None
    assert judged.value.value == pytest.approx(middle)
    distance = bound - middle
    if abs(abs(distance) - 2 * error) > 1e-9 and abs(distance) > 1e-12:  # else rounding decides
        wanted = "undecided" if abs(distance) < 2 * error else "holds" if distance >= 0 else "broken"
        assert judged.verdict == wanted


@given(
    st.lists(st.tuples(st.floats(-9, -0.1), st.floats(-9, -0.1)), min_size=2, max_size=30), st.floats(1, 4)
)
def test_the_ratio_is_bounded_both_ways(logprobs: list[tuple[float, float]], bound: float) -> None:
    swapped = [(b, a) for a, b in logprobs]
    (one,) = judge(Bounds(max_ppl_ratio=bound), figures_of([], [], logprobs), complete=True)
    (other,) = judge(Bounds(max_ppl_ratio=bound), figures_of([], [], swapped), complete=True)
    assert one.verdict == other.verdict
    assert one.value is not None
    assert other.value is not None
    assert one.value.value * other.value.value == pytest.approx(1)


@pytest.mark.parametrize("kl", [[], [math.nan, 0.1]])
def test_what_is_no_number_is_not_known(kl: list[float]) -> None:
    (judged,) = judge(Bounds(max_kld=1.0), figures_of(kl, [], []), complete=True)
    assert judged.verdict == "unknown"


def test_an_infinite_divergence_breaks_every_bound() -> None:
    (judged,) = judge(Bounds(max_kld=1e300), figures_of([0.1, math.inf], [], []), complete=True)
    assert judged.verdict == "broken"


def test_of_a_part_of_the_text_nothing_is_known() -> None:
    judged = judge(Bounds(1.0, 0.5, 2.0), figures_of([0.1], [True], [(-1.0, -1.0)]), complete=False)
    assert [each.verdict for each in judged] == ["unknown"] * 3
    judged = judge(Bounds(1.0, 0.5, 2.0), figures_of([0.1], [True], [(-1.0, -1.0)]), complete=True)
    assert [each.verdict for each in judged] == ["holds"] * 3
