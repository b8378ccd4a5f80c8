"""The whole sampler against the float64 reference: random orders with penalties anywhere, settings and rows."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import settings as budget
from hypothesis import strategies as st

from engine.errors import StepError
from engine.sampling.pipeline import Sampled, Stage, StageContext, StageRun, sample
from engine.sampling.ranking import Masses, Row
from engine.settings import ORDERS, Settings
from tests.engine.sampling.reference import Reference


@st.composite
def rows(draw: st.DrawFn) -> Row:
    """Logits as models give them: float32, float16, bfloat16; ties, minus infinity, huge, tiny, flat and certain."""
    size = draw(st.sampled_from([16, 33, 300, 3000]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scale = draw(st.sampled_from([0.0, 1e-6, 0.01, 1.0, 4.0, 30.0, 1e4]))
    row = rng.standard_normal(size) * scale + draw(st.sampled_from([0.0, 0.0, -20.0, 20.0]))
    if draw(st.booleans()):
        row = np.round(row)
    if draw(st.booleans()):
        row[rng.random(size) < 0.3] = -np.inf
    if draw(st.booleans()):
        row[int(rng.integers(size))] = 90.0
    assume(np.isfinite(row).any())
    kind = getattr(mx, draw(st.sampled_from(["float32", "float16", "bfloat16"])))
    row = np.array(mx.array(row.astype(np.float32)).astype(kind).astype(mx.float32))
    assume(not np.isposinf(row).any())
    return row


IDS = st.integers(0, 15)
SETTINGS = st.builds(
    Settings,
    temp=st.sampled_from([0.001, 0.1, 0.7, 1.0, 1.0, 1.3, 100.0]),
    top_p=st.sampled_from([1.0, 0.999, 0.9, 0.5, 0.1]),
    min_p=st.sampled_from([0.0, 0.01, 0.1, 1.0]),
    min_tokens_to_keep=st.sampled_from([1, 1, 2, 5, 40]),
    top_k=st.sampled_from([0, 1, 3, 20]),
    min_tokens=st.just(1),
    xtc_probability=st.sampled_from([0.0, 1.0]),
    xtc_threshold=st.sampled_from([0.0, 0.02, 0.1, 0.5]),
    logit_bias=st.lists(st.tuples(IDS, st.sampled_from([-100.0, -1.5, 0.3, 12.0])), max_size=2).map(tuple),
    repetition_penalty=st.sampled_from([0.0, 0.5, 1.1, 2.0]),
    repetition_context_size=st.sampled_from([1, 20]),
    presence_penalty=st.sampled_from([0.0, -1.0, 0.4, 5.0]),
    frequency_penalty=st.sampled_from([0.0, 0.2, -0.7]),
    frequency_context_size=st.sampled_from([3, 20]),
    sampler_order=st.sampled_from(list(ORDERS)),
)  # fmt: skip
CONTEXTS = st.builds(
    StageContext,
    path=st.lists(IDS, max_size=25).map(tuple),
    barred=st.lists(IDS, max_size=2, unique=True).map(tuple),
    spared=st.lists(IDS, max_size=2, unique=True).map(tuple),
    chance=st.just(0.0),
)


def run_both(row: Row, settings: Settings, context: StageContext) -> tuple[Sampled, Reference]:
    """The sampler and the reference, stage by stage."""
    reference = Reference(row, settings, context.path, context.barred, context.spared)

    def watch(stage: Stage, run: StageRun) -> None:
        reference.apply(stage.name, run.row > -np.inf)

    return sample(Masses(row), settings, 0.5, context, watch), reference


def check(row: Row, settings: Settings, context: StageContext) -> None:
    """The sampler's probabilities are the reference's, but for the rounding of float32 logits.

    A probability's relative error is at most the logits' rounding: for each stage that computes 2**-23 of the largest
    logit and of the widest gap between two, over temperature.
    """
    try:
        sampled, reference = run_both(row, settings, context)
    except StepError:
        assert context.barred  # by min tokens behind a filter; test_barring_all_that_a_filter_left has one
        return
    if settings.temp == 0:
        assert reference.logits[sampled.picked] >= reference.logits.max() - 2 * reference.slack
        return
    reference._round()
    wanted = reference.probs
    error = wanted * np.expm1(min(50.0, 2 * (reference.slack + reference.drawn_slack))) + 1e-15
    assert np.all(np.abs(sampled.probs - wanted) <= error), np.abs(sampled.probs - wanted).max()
    assert abs(sampled.probs.sum() - 1) < 1e-12


@given(rows(), SETTINGS, CONTEXTS)
@budget(max_examples=60, deadline=None)
def test_any_order_gives_what_its_definitions_give(
    row: Row, settings: Settings, context: StageContext
) -> None:
    check(row, settings, context)


def test_logprobs_are_rounded_before_a_filter_cuts() -> None:
    """Two of 3,000 logits differ by less than float32 tells of their logprobs (-8), which the draw is made from."""
    row = (np.random.default_rng(10).standard_normal(3000) * 1e-6).astype(np.float32)
    settings = Settings(temp=0.001, min_p=1.0)
    sampled, reference = run_both(row, settings, StageContext(chance=0.0))
    assert sampled.probs[sampled.probs > 0].tolist() == [0.5, 0.5]
    assert reference.probs.max() == pytest.approx(0.5001156)
    check(row, settings, StageContext(chance=0.0))


@pytest.mark.slow
@given(rows(), SETTINGS, CONTEXTS)
@budget(max_examples=20_000, deadline=None)
def test_any_order_gives_what_its_definitions_give_at_length(
    row: Row, settings: Settings, context: StageContext
) -> None:
    check(row, settings, context)


def test_barring_all_that_the_model_left_is_an_error_of_the_settings() -> None:
    settings = Settings(temp=1.0, min_tokens=1)
    row = np.array([-np.inf, 5, -np.inf], np.float32)
    with pytest.raises(StepError, match=r"min-tokens cut every token .* Loosen min-tokens"):
        sample(Masses(row), settings, 0.5, StageContext(barred=(1,)))


def program(name: str, **options: float) -> Settings:
    """Settings under the order of a program."""
    return Settings(sampler_order=name, **{"temp": 1.0, **options})  # type: ignore[arg-type]


TIED = np.array([1, 1, 2, 1, 1, 0, -np.inf, 1], np.float32)
"""One best token, five tied ones, a last one, and one that the model bars: 33.6, 12.4 each, 4.5 %."""
TIES = [
    ("mlx-lm", {"top_k": 3}, {2, 0, 1}),
    ("llama.cpp", {"top_k": 3}, {2, 0, 1}),
    ("transformers", {"top_k": 3}, {2, 0, 1, 3, 4, 7}),
    ("mlx-lm", {"top_p": 0.5}, {2, 0, 1, 3, 4, 7}),
    ("llama.cpp", {"top_p": 0.5}, {2, 0, 1}),
    ("transformers", {"top_p": 0.5}, {2, 4, 7}),
    ("mlx-lm", {"xtc_probability": 1, "xtc_threshold": 0.05}, {0, 1, 3, 4, 7, 5}),
    ("transformers", {"xtc_probability": 1, "xtc_threshold": 0.05}, {0, 1, 3, 4, 7, 5}),
    ("llama.cpp", {"xtc_probability": 1, "xtc_threshold": 0.05}, {7, 5}),
    ("mlx-lm", {"xtc_probability": 1, "xtc_threshold": 0.2}, {0, 1, 2, 3, 4, 5, 7}),
]


@pytest.mark.parametrize(("name", "options", "kept"), TIES)
def test_ties_and_xtc_follow_the_program_whose_order_runs(
    name: str, options: dict[str, float], kept: set[int]
) -> None:
    sampled, reference = run_both(TIED, program(name, **options), StageContext(chance=0.0))
    assert set(np.flatnonzero(sampled.probs)) == kept == set(np.flatnonzero(reference.kept))


def test_llama_cpps_xtc_spares_no_token_and_counts_from_the_threshold_up() -> None:
    row = np.log(np.array([0.5, 0.25, 0.125, 0.125], np.float32))
    options = {"xtc_probability": 1, "xtc_threshold": 0.25}
    context = StageContext(spared=(0,), chance=0.0)
    assert np.flatnonzero(run_both(row, program("llama.cpp", **options), context)[0].probs).tolist() == [
        1,
        2,
        3,
    ]
    assert np.flatnonzero(run_both(row, program("mlx-lm", **options), context)[0].probs).tolist() == [
        0,
        1,
        2,
        3,
    ]


@pytest.mark.wide(2)
@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("scale", [0.0, 0.01, 3.0])
def test_top_p_over_150_000_tokens_keeps_no_token_too_few(name: str, scale: float) -> None:
    for seed in range(3):
        row = (np.random.default_rng(seed).standard_normal(150_000) * scale).astype(np.float32)
        settings = program(name, top_p=0.9)
        reference = Reference(row, settings)
        mask = reference._top_p()
        sampled, _ = run_both(row, settings, StageContext())
        assert (sampled.probs > 0).sum() == mask.sum()
