"""The sampler's stages against mlx_lm's own functions, and the draw against its stated distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import settings as budget
from hypothesis import strategies as st
from mlx_lm import sample_utils
from msgspec.structs import replace

from engine.sampling.pipeline import (
    StageContext,
    bias,
    invert,
    min_p,
    pipeline,
    sample,
    top_k,
    top_p,
    uniform,
    xtc,
)
from engine.sampling.ranking import Ids, Masses, Row, checked_logprobs, ranked
from engine.settings import ORDERS, Settings

mx.disable_compile()


@st.composite
def logits(draw: st.DrawFn) -> Row:
    """Rows with ties, -inf, one-token mass, of vocabularies from 16 to 5,000, in float32, float16 and bfloat16."""
    size = draw(st.sampled_from([16, 17, 100, 1000, 5000]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    row = (rng.standard_normal(size) * draw(st.sampled_from([0.0, 0.5, 3.0, 10.0]))).astype(np.float32)
    if draw(st.booleans()):
        row = np.round(row * 2) / 2  # ties
    if draw(st.booleans()):
        row[rng.random(size) < 0.3] = -np.inf
    if draw(st.booleans()):
        row[int(rng.integers(size))] = 60.0  # all the mass
    assume(np.isfinite(row).any())
    kind = draw(st.sampled_from(["float32", "float16", "bfloat16"]))
    return np.array(mx.array(row).astype(getattr(mx, kind)).astype(mx.float32))


def kept(row: Row) -> set[int]:
    return set(np.flatnonzero(np.isfinite(row)).tolist())


def cut(row: Row, places: Ids, spared: Sequence[int] = ()) -> Row:
    """A row of which a filter left the tokens at some places, besides those that it spares."""
    left = np.full_like(row, -np.inf)
    for each in (places, list(spared)):
        left[each] = row[each]
    return left


def softmax64(chain: mx.array) -> np.ndarray:
    """What mlx_lm's categorical draws from, without the rounding of a float32 sum."""
    wide = np.array(chain[0]).astype(np.float64)
    weights = np.exp(wide - wide.max())
    shares: np.ndarray = weights / weights.sum()
    return shares


def theirs(function: object, row: Row, *args: float) -> set[int]:
    return kept(np.array(function(mx.array(row)[None], *args)[0]))  # type: ignore[operator]


@given(logits(), st.sampled_from([0.1, 0.5, 0.8, 0.9, 0.95, 0.999]))
@budget(max_examples=60, deadline=None)
def test_top_p_keeps_what_mlx_lm_keeps(row: Row, share: float) -> None:
    logprobs = checked_logprobs(row)
    mine, other = (
        kept(cut(logprobs, top_p(Masses(logprobs), share))),
        theirs(sample_utils.apply_top_p, logprobs, share),
    )
    # float32 exp differs by a rounding between numpy and MLX: a token whose edge lies within it may go either way.
    for token in mine ^ other:
        probs = np.exp(logprobs.astype(np.float64))
        above = probs[logprobs > logprobs[token]].sum() / probs.sum()
        tied = probs[logprobs == logprobs[token]].sum() / probs.sum()
        edges = above + tied * np.arange(0, 1.0001, 1 / max(1, int((logprobs == logprobs[token]).sum())))
        assert np.abs(edges - share).min() < 1e-5


@given(logits(), st.sampled_from([0.01, 0.05, 0.1, 0.5, 1.0]))
@budget(max_examples=60, deadline=None)
def test_min_p_keeps_what_mlx_lm_keeps(row: Row, share: float) -> None:
    logprobs = checked_logprobs(row)
    assert kept(cut(logprobs, min_p(logprobs, share))) == theirs(sample_utils.apply_min_p, logprobs, share)


@given(logits(), st.sampled_from([0.01, 0.1, 0.5, 1.0]), st.integers(1, 15))
@budget(max_examples=60, deadline=None)
def test_min_p_keeps_as_many_tokens_at_least_as_mlx_lm(row: Row, share: float, least: int) -> None:
    logprobs = checked_logprobs(row)
    mine = cut(logprobs, min_p(logprobs, share, least))
    other = np.array(sample_utils.apply_min_p(mx.array(logprobs)[None], share, least)[0])
    # Which of some tied tokens stays is the library's choice there and the lowest ids here: the values are equal.
    assert np.array_equal(np.sort(mine), np.sort(other))


@given(logits(), st.integers(1, 15))
@budget(max_examples=60, deadline=None)
def test_top_k_keeps_the_values_that_mlx_lm_keeps(row: Row, k: int) -> None:
    logprobs = checked_logprobs(row)
    mine = cut(logprobs, top_k(Masses(logprobs), k))
    other = np.array(sample_utils.apply_top_k(mx.array(logprobs)[None], k)[0])
    # Which of some tied tokens stays is the library's choice there and the lowest ids here: the values are equal.
    assert np.array_equal(np.sort(mine), np.sort(other))


@given(logits(), st.integers(1, 40))
@budget(max_examples=60, deadline=None)
def test_ranked_is_a_stable_sort(row: Row, k: int) -> None:
    k = min(k, row.size)
    assert ranked(row, k).tolist() == sorted(range(row.size), key=lambda token: (-row[token], token))[:k]


SETTINGS = st.builds(
    Settings,
    temp=st.sampled_from([0.2, 0.7, 1.0, 1.7]),
    top_p=st.sampled_from([1.0, 0.9, 0.5]),
    min_p=st.sampled_from([0.0, 0.05, 0.3]),
    min_tokens_to_keep=st.sampled_from([1, 1, 3, 12]),
    top_k=st.sampled_from([0, 1, 5, 40]),
)


def partitions(settings: Settings) -> bool:
    """Whether mlx_lm leaves it to a partition which of some tied tokens stay."""
    return bool(settings.top_k or (settings.min_p and settings.min_tokens_to_keep > 1))


@given(logits(), SETTINGS, st.floats(0, 1, exclude_max=True))
@budget(max_examples=60, deadline=None)
def test_the_final_distribution_is_that_of_mlx_lms_chain(row: Row, settings: Settings, draw: float) -> None:
    logprobs = checked_logprobs(row)
    assume(len(set(logprobs.tolist())) == row.size or not partitions(settings))
    sampled = sample(Masses(row), settings, draw)
    chain = mx.array(logprobs)[None]
    if settings.top_p < 1:
        chain = sample_utils.apply_top_p(chain, settings.top_p)
    if settings.min_p:
        chain = sample_utils.apply_min_p(chain, settings.min_p, settings.min_tokens_to_keep)
    if 0 < settings.top_k < row.size:
        chain = sample_utils.apply_top_k(chain, settings.top_k)
    expected = softmax64(chain * (1 / settings.temp))
    mine = set(np.flatnonzero((sampled.cut < 0) & np.isfinite(logprobs)).tolist())
    if mine == kept(np.array(chain[0])):
        assert np.abs(sampled.probs - expected).max() < 2e-6
    else:  # only the top-p edge may differ, by the rounding that its own test bounds
        assert settings.top_p < 1
    assert math.isclose(sampled.probs.sum(), 1, rel_tol=1e-12)
    assert sampled.probs[sampled.picked] > 0


def test_every_stage_tells_what_it_kept_and_removed() -> None:
    row = np.log(np.array([0.5, 0.25, 0.125, 0.0625, 0.0625], np.float32))
    sampled = sample(Masses(row), Settings(temp=1.0, top_p=0.8, top_k=2), 0.0)
    assert [(each.name, each.kept) for each in sampled.readings] == [("top-p", 3), ("top-k", 2)]
    assert sampled.readings[0].removed_mass == pytest.approx(0.125)
    assert sampled.readings[1].removed_mass == pytest.approx(0.125 / 0.875)
    names = [sampled.names[cut] if cut >= 0 else None for cut in sampled.cut.tolist()]
    assert names == [None, None, "top-k", "top-p", "top-p"]


def test_greedy_takes_the_first_of_the_most_probable_and_draws_nothing() -> None:
    row = np.array([0.0, 3.0, 3.0, -np.inf], np.float32)
    sampled = sample(Masses(row), Settings(top_k=1), 0.99)
    assert (sampled.picked, sampled.draw) == (1, None)
    assert sampled.probs.tolist() == [0, 1, 0, 0]


def test_barred_tokens_are_out_and_said_to_be() -> None:
    row = np.array([5.0, 1.0, 0.0], np.float32)
    sampled = sample(Masses(row), Settings(min_tokens=1), 0.0, StageContext(barred=(0,)))
    assert sampled.picked == 1
    assert sampled.names[sampled.cut[0]] == "min-tokens"


def test_the_draw_depends_on_seed_position_and_reroll_alone() -> None:
    assert uniform(7, 12, 0) == uniform(7, 12, 0)
    assert (
        len({uniform(seed, place, turn) for seed in (0, 2**64 - 1) for place in (0, 1) for turn in (0, 1)})
        == 8
    )
    # The first 53 bits of BLAKE2b: this value must never change, or every seed means another text.
    assert uniform(7, 12, 0) == pytest.approx(float.fromhex(EXPECTED_DRAW), abs=0)


EXPECTED_DRAW = "0x1.8c98fb2bfc8dep-2"


@pytest.mark.parametrize("seed", [0, 42])
def test_the_draws_are_uniform_alone_and_in_pairs(seed: int) -> None:
    draws = np.array([uniform(seed, position, 0) for position in range(20_000)])
    assert (
        chi_square(np.histogram(draws, 16, (0, 1))[0], np.full(16, 1 / 16)) < 37.7
    )  # 0.1 % of chi-square(15)
    cells = (draws[:-1] * 16).astype(int) * 16 + (draws[1:] * 16).astype(int)
    assert (
        chi_square(np.bincount(cells, minlength=256), np.full(256, 1 / 256)) < 330.5
    )  # 0.1 % of chi-square(255)


def chi_square(counts: np.ndarray, shares: np.ndarray) -> float:
    expected = counts.sum() * shares
    return float(((counts - expected) ** 2 / expected).sum())


PIPELINES = [
    Settings(temp=1.0),
    pytest.param(Settings(temp=0.7, top_p=0.9), marks=pytest.mark.slow),
    pytest.param(Settings(temp=1.5, min_p=0.05, top_k=8), marks=pytest.mark.slow),
    Settings(temp=1.2, top_p=0.95, min_p=0.02),
]


@pytest.mark.wide(1)
@pytest.mark.parametrize("count", [50_000, pytest.param(200_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("settings", PIPELINES, ids=str)
def test_draws_fit_the_stated_distribution(settings: Settings, count: int) -> None:
    row = np.random.default_rng(1).standard_normal(24).astype(np.float32) * 2
    probs = sample(Masses(row), settings, 0.5).probs
    picked = [invert(probs, uniform(9, position, 0))[0] for position in range(count)]
    live = np.flatnonzero(probs)
    counts = np.bincount(picked, minlength=24)
    assert counts[probs == 0].sum() == 0
    freedom = live.size - 1
    limit = (
        freedom + 3.3 * math.sqrt(2 * freedom) + 8
    )  # above the 99.9 % quantile for these degrees of freedom
    assert chi_square(counts[live], probs[live]) < limit


@given(st.integers(2, 2000), st.integers(0, 2**32 - 1), st.floats(0, 1, exclude_max=True))
@budget(max_examples=60, deadline=None)
def test_the_token_under_the_draw_is_the_one_whose_share_holds_it(size: int, seed: int, draw: float) -> None:
    rng = np.random.default_rng(seed)
    probs = rng.random(size) ** 8
    probs[rng.random(size) < 0.3] = 0
    assume(probs.sum() > 0)
    probs /= probs.sum()
    picked, start, end = invert(probs, draw)
    assert probs[picked] > 0
    assert end - start == pytest.approx(probs[picked])
    assert start <= draw + 1e-12
    assert draw < end + 1e-9
    better = probs[(probs > probs[picked])].sum()
    assert start >= better - 1e-9


RECENT = st.lists(st.integers(0, 15), max_size=30).map(tuple)


@given(logits(), RECENT, st.sampled_from([0.5, 1.1, 1.5, 3.0]), st.integers(1, 30))
@budget(max_examples=60, deadline=None)
def test_penalties_equal_mlx_lms(row: Row, path: tuple[int, ...], penalty: float, size: int) -> None:
    row = np.where(np.isneginf(row), np.float32(-50), row)
    cases = {
        "repetition": (
            sample_utils.make_repetition_penalty,
            {"repetition_penalty": penalty, "repetition_context_size": size},
        ),
        "presence": (
            sample_utils.make_presence_penalty,
            {"presence_penalty": penalty, "presence_context_size": size},
        ),
        "frequency": (
            sample_utils.make_frequency_penalty,
            {"frequency_penalty": penalty, "frequency_context_size": size},
        ),
    }
    for name, (make, options) in cases.items():
        stages = pipeline(Settings(**options), StageContext(path=path))  # type: ignore[arg-type]
        mine = row
        for stage in stages:
            assert stage.name == name
            mine = stage.run(mine)
        expected = make(penalty, size)(mx.array(path, dtype=mx.int32), mx.array(row)[None])
        # one rounding: MLX may multiply by a reciprocal where numpy divides
        assert np.allclose(mine, np.array(expected[0]), rtol=2e-6, atol=1e-6)


@given(logits(), st.dictionaries(st.integers(0, 15), st.floats(-50, 50, width=32), min_size=1, max_size=5))
@budget(max_examples=60, deadline=None)
def test_logit_bias_equals_mlx_lms(row: Row, biases: dict[int, float]) -> None:
    mine = bias(row, tuple(biases.items()))
    processor = sample_utils.make_logits_processors(logit_bias=biases)[0]
    assert np.array_equal(mine, np.array(processor(None, mx.array(row)[None])[0]))


@pytest.mark.parametrize(("temp", "last"), [(1.0, "top-p"), (0.0, "greedy")])
def test_a_bias_that_bars_is_the_reason_for_a_cut_after_it(temp: float, last: str) -> None:
    row = np.array([3, 2, 1, 0], np.float32)
    settings = Settings(temp=temp, top_p=0.9, logit_bias=((0, -100.0), (3, -99.0)))
    sampled = sample(Masses(row), settings, 0.0)
    assert [sampled.names[place] for place in sampled.cut[[0, 3]]] == ["logit-bias", last]


@given(logits(), st.sampled_from([0.0, 0.05, 0.1, 0.3, 0.5]), st.lists(st.integers(0, 15), max_size=3))
@budget(max_examples=60, deadline=None)
def test_xtc_equals_mlx_lms(row: Row, threshold: float, spared: list[int]) -> None:
    logprobs = checked_logprobs(row)
    mine = cut(logprobs, xtc(logprobs, threshold), spared)
    other = np.array(sample_utils.apply_xtc(mx.array(logprobs)[None], 1.0, threshold, spared)[0])
    if kept(mine) != kept(other):  # a probability within a rounding of the threshold or of the least above it
        probs = np.exp(logprobs.astype(np.float64))
        probs /= probs.sum()
        differs = np.array(sorted(kept(mine) ^ kept(other)))
        edges = [
            threshold,
            *(probs[probs > threshold * (1 - 1e-5)][:1]),
            probs[probs > threshold * (1 - 1e-5)].min(),
        ]
        assert min(np.abs(probs[differs] - edge).min() / max(edge, 1e-9) for edge in edges) < 1e-4


def test_xtc_fires_on_its_own_draw() -> None:
    settings = Settings(temp=1.0, xtc_probability=0.4)
    assert [s.name for s in pipeline(settings, StageContext(chance=0.39))] == ["xtc"]
    assert pipeline(settings, StageContext(chance=0.41)) == ()
    fired = sum(uniform(3, place, 0, "xtc") <= 0.4 for place in range(20_000)) / 20_000
    assert fired == pytest.approx(0.4, abs=0.015)


def float64_transformers(row: np.ndarray, settings: Settings) -> np.ndarray:
    """transformers' order from its definitions, in float64: temperature, top-k, top-p, min-p, each on a softmax."""
    scores = row.astype(np.float64) / settings.temp
    if 0 < settings.top_k < row.size:
        scores[scores < np.sort(scores)[-settings.top_k]] = -np.inf
    if settings.top_p < 1:
        order = np.argsort(-scores, kind="stable")
        probs = np.exp(scores[order] - scores.max())
        probs /= probs.sum()
        outside = np.cumsum(probs) - probs >= settings.top_p
        scores[order[outside]] = -np.inf
    if settings.min_p:
        probs = np.exp(scores - scores.max())
        spared = np.argsort(-scores, kind="stable")[: settings.min_tokens_to_keep]
        passing = probs >= settings.min_p
        passing[spared] = True
        scores[~passing] = -np.inf
    weights = np.exp(scores - scores.max())
    return weights / weights.sum()


@given(st.integers(0, 2**32 - 1), SETTINGS, st.sampled_from([16, 500]))
@budget(max_examples=60, deadline=None)
def test_the_transformers_order_is_what_its_definitions_give(
    seed: int, settings: Settings, size: int
) -> None:
    row = (np.random.default_rng(seed).standard_normal(size) * 3).astype(np.float32)
    settings = replace(settings, sampler_order="transformers")
    mine = sample(Masses(row), settings, 0.5).probs
    assert np.abs(mine - float64_transformers(row, settings)).max() < 2e-6


def test_the_order_changes_what_is_kept() -> None:
    row = np.log(np.array([0.4, 0.2, 0.15, 0.1, 0.08, 0.07], np.float32))
    options = {"temp": 1.0, "top_p": 0.7, "top_k": 3}
    mlx_order = sample(Masses(row), Settings(**options), 0.0)  # type: ignore[arg-type]
    other = sample(Masses(row), Settings(**options, sampler_order="llama.cpp"), 0.0)  # type: ignore[arg-type]
    assert [(each.name, each.kept) for each in mlx_order.readings] == [("top-p", 3), ("top-k", 3)]
    assert [(each.name, each.kept) for each in other.readings] == [("top-k", 3), ("top-p", 2)]


@given(logits(), st.sampled_from(["mlx-lm", "transformers"]), SETTINGS)
@budget(max_examples=60, deadline=None)
def test_an_order_equals_mlx_lms_functions_in_that_order(row: Row, order: str, settings: Settings) -> None:
    settings = replace(settings, sampler_order=order, xtc_probability=1.0)
    logprobs = checked_logprobs(row)
    assume(len(set(logprobs.tolist())) == row.size or not partitions(settings))
    mine = sample(Masses(row), settings, 0.5, StageContext(chance=0.0))
    chain = mx.array(logprobs)[None]
    for name in ORDERS[order]:
        chain = chain - mx.logsumexp(chain, axis=-1, keepdims=True)
        match name:
            case "top-p" if settings.top_p < 1:
                chain = sample_utils.apply_top_p(chain, settings.top_p)
            case "min-p" if settings.min_p:
                chain = sample_utils.apply_min_p(chain, settings.min_p, settings.min_tokens_to_keep)
            case "xtc":
                chain = sample_utils.apply_xtc(chain, 1.0, settings.xtc_threshold, [])
            case "top-k" if 0 < settings.top_k < row.size:
                chain = sample_utils.apply_top_k(chain, settings.top_k)
            case "temperature":
                chain = chain * (1 / settings.temp)
    expected = softmax64(chain)
    same_kept = kept(np.array(chain[0])) == set(
        np.flatnonzero((mine.cut < 0) & np.isfinite(logprobs)).tolist()
    )
    assume(same_kept)  # where one rounding moves an edge, the single-stage tests bound it
    assert np.abs(mine.probs - expected).max() < 5e-6


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_vocabulary_of_150_000_is_filtered_as_mlx_lm_does(kind: str, seed: int) -> None:
    row = np.random.default_rng(seed).standard_normal(150_000).astype(np.float32) * 3
    row = np.array(mx.array(row).astype(getattr(mx, kind)).astype(mx.float32))
    logprobs = checked_logprobs(row)
    chain = mx.array(logprobs)[None]
    assert kept(cut(logprobs, min_p(logprobs, 0.05))) == theirs(sample_utils.apply_min_p, logprobs, 0.05)
    assert kept(cut(logprobs, xtc(logprobs, 0.001), (5,))) == kept(
        np.array(sample_utils.apply_xtc(chain, 1.0, 0.001, [5])[0])
    )
    mine = cut(logprobs, top_k(Masses(logprobs), 40))
    other = np.array(sample_utils.apply_top_k(chain, 40)[0])
    assert np.array_equal(np.sort(mine), np.sort(other))
    # the float32 sum over 150,000 terms may move the edge by tokens that hold 1e-3 of the mass together
    differs = np.array(
        sorted(
            kept(cut(logprobs, top_p(Masses(logprobs), 0.9)))
            ^ theirs(sample_utils.apply_top_p, logprobs, 0.9)
        ),
        int,
    )
    assert np.exp(logprobs[differs].astype(np.float64)).sum() < 1e-3
