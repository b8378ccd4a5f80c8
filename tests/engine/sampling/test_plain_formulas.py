"""The sampler and the readings give what their plain formulas give: to the last bit, entropies and masses but for the
rounding of sums in another order."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as budget
from hypothesis import strategies as st

from engine.errors import StepError
from engine.logits.node_sampler import entropy_of
from engine.sampling.pipeline import (
    MINUS_INFINITY,
    Ties,
    _nucleus,
    _sorted_nucleus,
    allow,
    invert,
    sample,
    top_p,
)
from engine.sampling.ranking import (
    LN2,
    Masses,
    Row,
    checked_logprobs,
    rank_of,
    ranked,
    ranked_rows,
)
from engine.settings import ORDERS, Settings
from tests.engine.sampling.plain import plain_invert, plain_log_softmax, plain_sample, plain_top_p

SIZES = (1, 2, 5, 64, 65, 500, 4096, 20_000)
SHARES = (1e-6, 0.1, 0.5, 0.9, 0.95, 0.999, 0.999999999, 1.0, 1.5)


@st.composite
def rows(draw: st.DrawFn) -> Row:
    """Rows of any shape: flat, peaked, tied, mostly cut, all equal, of a token alone."""
    size = draw(st.sampled_from(SIZES))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    row = (rng.standard_normal(size) * draw(st.sampled_from([0.0, 0.01, 1.0, 3.0, 30.0]))).astype(np.float32)
    if draw(st.booleans()):
        row[: 1 + size // 100] += np.float32(draw(st.sampled_from([5.0, 14.0, 200.0])))
    if draw(st.booleans()):
        row = (np.round(row * 2) / 2).astype(np.float32)
    if draw(st.booleans()):
        row[rng.random(size) < draw(st.sampled_from([0.3, 0.99]))] = -np.inf
        row[int(rng.integers(size))] = draw(st.sampled_from([0.0, -1e30, 60.0]))
    if draw(st.booleans()):
        row += np.float32(draw(st.sampled_from([-100.0, 1e4, -3e38])))
    return row


def told(found: tuple[np.ndarray, np.float32, int]) -> tuple[list[int], float, int]:
    """What a search for top-p's edge found, to compare."""
    return found[0].tolist(), float(found[1]), found[2]


def same(one: np.ndarray, other: np.ndarray) -> bool:
    return one.dtype == other.dtype and one.tobytes() == other.tobytes()


@given(rows(), st.sampled_from(SHARES), st.sampled_from(["all", "lowest", "highest"]))
@budget(max_examples=60, deadline=None)
def test_top_p_by_its_edge_is_top_p_of_all_sorted(row: Row, share: float, ties: Ties) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        row = row[row > MINUS_INFINITY]
        assert top_p(Masses(row), share, ties).tolist() == plain_top_p(row, share, ties).tolist()


@given(rows(), st.sampled_from(SHARES))
@budget(max_examples=60, deadline=None)
def test_where_the_edge_is_decided_it_is_that_of_the_sorted_tokens(row: Row, share: float) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        found = _nucleus(Masses(row), share)
        assert found is None or told(found) == told(_sorted_nucleus(row, share))


def test_the_edge_is_decided_on_usual_rows_and_left_to_sorting_where_sums_decide() -> None:
    row = np.random.default_rng(0).standard_normal(20_000).astype(np.float32) * 3
    found = _nucleus(Masses(row), 0.95)
    assert found is not None
    assert told(found) == told(_sorted_nucleus(row, 0.95))
    assert (
        _nucleus(Masses(np.zeros(4096, np.float32)), 0.5) is None
    )  # half the mass is half the tokens, exactly
    for odd in (np.nan, np.inf):
        row[7] = odd
        assert _nucleus(Masses(row), 0.95) is None
        with np.errstate(invalid="ignore"):
            assert top_p(Masses(row), 0.95).tolist() == plain_top_p(row, 0.95, "all").tolist()


@given(rows(), st.integers(0, 2**32 - 1), st.floats(0, 1))
@budget(max_examples=60, deadline=None)
def test_what_a_grammar_allows_is_where(row: Row, seed: int, part: float) -> None:
    allowed = np.random.default_rng(seed).random(row.size) < part
    assert same(allow(row, allowed), np.where(allowed, row, MINUS_INFINITY))


@given(rows(), st.sampled_from([1, 5, 20, 512]))
@budget(max_examples=60, deadline=None)
def test_the_best_by_groups_are_those_of_a_stable_sort(row: Row, k: int) -> None:
    assert same(ranked(row, k), np.argsort(-row, kind="stable")[:k])


def test_the_best_are_found_of_rows_of_any_size() -> None:
    random = np.random.default_rng(3)
    for size in (1, 2, 3, 5, 8, 63, 64, 65, 200):
        row = random.integers(0, size, size).astype(np.float32)
        for k in range(1, min(size, 80) + 2):
            assert same(ranked(row, k), np.argsort(-row, kind="stable")[:k])


@pytest.mark.parametrize("live", [0, 3, 40])
def test_beyond_the_tokens_that_are_left_the_first_of_the_cut_ones_follow(live: int) -> None:
    row = np.full(10_000, -np.inf, np.float32)
    row[5000 : 5000 + live] = np.arange(live)
    for k in (1, live, 20):
        assert same(ranked(row, max(1, k)), np.argsort(-row, kind="stable")[: max(1, k)])


@given(rows())
@budget(max_examples=60, deadline=None)
def test_logprobs_ranks_and_entropies_are_those_of_the_formulas(row: Row) -> None:
    with np.errstate(over="ignore"):
        logprobs = plain_log_softmax(row)
        assert same(checked_logprobs(row), logprobs)
    token = row.size // 2
    assert rank_of(row, token) == int((row > row[token]).sum()) + 1
    weights = np.exp(shifted := np.subtract(row, row.max(), dtype=np.float64))
    weight, live = float(weights.sum()), weights > 0
    products = float(np.einsum("i,i", weights[live], shifted[live]))
    masses = Masses(row)
    assert masses.weight == weight  # of one block
    assert masses.entropy_bits == pytest.approx(
        (math.log(weight) - products / weight) / LN2, rel=1e-13, abs=1e-15
    )
    probs, ids = weights / weight, np.arange(0, row.size, 3)
    assert masses.without(ids) == pytest.approx(float(np.delete(probs, ids).sum()), rel=1e-9, abs=1e-300)
    left = probs[probs > 0]
    assert entropy_of(probs) == max(0.0, -float(np.einsum("i,i", left, np.log(left))) / LN2)


@pytest.mark.parametrize("barred", [0.0, 0.3])
def test_a_long_row_adds_up_by_blocks(barred: float) -> None:
    rng = np.random.default_rng(1)
    row = (rng.standard_normal(100_000) * 3).astype(np.float32)
    row[rng.random(row.size) < barred] = -np.inf
    masses, weights = Masses(row), np.exp(row.astype(np.float64) - float(row.max()))
    assert masses.weight == pytest.approx(math.fsum(weights), rel=1e-14)
    assert same(masses.logprobs, plain_log_softmax(row))
    probs = weights / math.fsum(weights)
    live = probs[probs > 0]
    assert masses.entropy_bits == pytest.approx(-math.fsum(live * np.log2(live)), rel=1e-12)
    best, almost = ranked(row, 20), ranked(row, 99_000)
    for ids in (best, almost):  # the rest of the second is less than a millionth
        assert masses.without(ids) == pytest.approx(math.fsum(np.delete(probs, ids)), rel=1e-9, abs=1e-300)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("size", SIZES)
def test_a_row_with_one_value_that_is_no_number_is_refused(size: int, value: float) -> None:
    row = np.zeros(size, np.float32)
    row[size // 2] = value
    with pytest.raises(StepError):
        checked_logprobs(row)


def test_a_row_that_bars_all_tokens_is_refused() -> None:
    with pytest.raises(StepError):
        checked_logprobs(np.full(5, -np.inf, np.float32))


@given(rows(), st.floats(0, 1, exclude_max=True), st.sampled_from([0.03, 0.3, 3.0]))
@budget(max_examples=60, deadline=None)
def test_a_draw_falls_on_the_same_token_and_between_the_same_sums(row: Row, draw: float, flat: float) -> None:
    weights = np.exp((row - row.max()).astype(np.float64) * flat)
    probs = weights / weights.sum()
    assert invert(probs, draw) == plain_invert(probs, draw)


SETTINGS = st.builds(
    Settings,
    temp=st.sampled_from([0.0, 0.2, 0.8, 1.0, 1.7]),
    top_p=st.sampled_from([1.0, 0.95, 0.5]),
    min_p=st.sampled_from([0.0, 0.05]),
    top_k=st.sampled_from([0, 0, 5, 40]),
    logit_bias=st.sampled_from([(), ((0, 4.0),)]),
    sampler_order=st.sampled_from(list(ORDERS)),
)


@given(rows(), SETTINGS, st.floats(0, 1, exclude_max=True))
@budget(max_examples=60, deadline=None)
def test_what_is_sampled_is_what_the_plain_pipeline_samples(
    row: Row, settings: Settings, draw: float
) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        logprobs = checked_logprobs(row)
        try:
            other = plain_sample(row, logprobs, settings, draw)
        except StepError:  # a low temperature of logits near the largest float
            with pytest.raises(StepError):
                sample(Masses(row), settings, draw)
            return
        one = sample(Masses(row), settings, draw)
    assert same(one.probs, other.probs)
    assert same(one.cut, other.cut)
    assert (one.names, one.picked) == (other.names, other.picked)
    for mine, theirs in zip(one.readings, other.readings, strict=True):
        assert (mine.name, mine.kept) == (theirs.name, theirs.kept)
        assert mine.removed_mass == pytest.approx(theirs.removed_mass, rel=1e-9, abs=1e-300)
    assert (one.draw, one.draw_from, one.draw_to) == (other.draw, other.draw_from, other.draw_to)
    assert math.isclose(one.probs.sum(), 1, rel_tol=1e-12)


# ---- several rows at once ----------------------------------------------------------------------


@st.composite
def together(draw: st.DrawFn) -> list[Row]:
    """Some rows of one vocabulary."""
    first = draw(rows())
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    others = draw(st.integers(0, 40 if first.size <= 4096 else 3))
    return [first, *(rng.permutation(first) * np.float32(scale) for scale in rng.random(others) + 0.1)]


@given(together(), st.sampled_from([1, 5, 20, 70]))
@budget(max_examples=60, deadline=None)
def test_rows_read_together_are_those_read_one_by_one(several: list[Row], k: int) -> None:
    assert all(map(same, ranked_rows(np.stack(several), k), [ranked(row, k) for row in several]))
