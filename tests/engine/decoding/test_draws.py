"""Many draws of one prompt: each is the one that re-rolls give, and their frequencies are the sampler's."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from engine import protocol
from engine.decoding.batch import _chi_square, chi_square_tail, wilson
from engine.decoding.rows import rows_of
from engine.grammar_settings import Grammar
from engine.protocol import DrawsCounted, LaneKV
from engine.session.session import Session
from engine.settings import ORDERS, Settings, check
from inspector.config.presets import SHIPPED
from tests.engine import sessions
from tests.engine.decoding.test_batch import CREATIVE, Batch, explained, source
from tests.zoo import Zoo

PROMPT = "Once upon a time"


def begun(zoo: Zoo, name: str = "pocket") -> Batch:
    batch = Batch(source(zoo, name))
    batch.do(protocol.Prefill(PROMPT, chat=False))
    return batch


def test_draw_k_is_the_one_that_k_rerolls_give(zoo: Zoo) -> None:
    batch = begun(zoo, "gemma3")
    batch.do(protocol.DrawMany(5, tokens=4, size=3))
    session = Session(zoo.load("gemma3"), CREATIVE)
    for reroll in range(5):
        list(session.prefill(PROMPT, session.tokens.encode(PROMPT), echo=False))
        ids = []
        for _ in range(4):
            session.reroll(reroll)
            ids.append(session.step().id)
        assert batch.ids[reroll] == ids
    counted = batch.of(DrawsCounted)[0]
    assert Counter(ids[0] for ids in batch.ids.values()) == {
        each.id: each.count for each in counted.outcomes if each.count
    }
    assert explained(batch.of(protocol.LaneCompared, batch.do(protocol.CompareBatch())))


def test_draws_begin_within_a_completion_and_leave_the_session_as_it_is(zoo: Zoo) -> None:
    batch = begun(zoo, "llama")
    batch.do(protocol.Run())
    steps = batch.of(protocol.Step)
    before = batch.do(protocol.Verify())[0]
    counted = batch.of(DrawsCounted, batch.do(protocol.DrawMany(40, node=steps[3].node)))[0]
    assert (counted.node, counted.draws, sum(each.count for each in counted.outcomes) + counted.others) == (
        steps[3].node,
        40,
        40,
    )
    stated = {each.id: each.sampler_prob for each in steps[4].choice.candidates}
    for each in counted.outcomes:
        if each.id in stated:
            assert each.prob == pytest.approx(stated[each.id], abs=1e-6)
    after = batch.do(protocol.Verify())[0]
    assert isinstance(before, protocol.Verified)
    assert isinstance(after, protocol.Verified)
    assert (after.node, after.tokens) == (before.node, before.tokens)


@pytest.mark.parametrize("draws", [200, pytest.param(2000, marks=pytest.mark.slow)])
def test_frequencies_pass_the_chi_square_test(zoo: Zoo, draws: int) -> None:
    batch = begun(zoo)
    batch.do(protocol.Configure(replace(CREATIVE, top_p=1.0, temp=1.6)))
    counted = batch.of(DrawsCounted, batch.do(protocol.DrawMany(draws)))[0]
    assert counted.degrees >= 2
    assert 1e-3 < counted.p_value <= 1
    inside = [each.low <= each.prob <= each.high for each in counted.outcomes if each.prob * draws >= 5]
    assert sum(inside) >= 0.8 * len(inside) > 0


STAGES: dict[str, dict[str, Any]] = {
    "logit bias": {"logit_bias": ((261, -2.0), (283, 1.5))},
    "min tokens": {"min_tokens": 5},
    "repetition": {"repetition_penalty": 1.3},
    "presence": {"presence_penalty": 1.0},
    "frequency": {"frequency_penalty": 1.0},
    "top-p": {"top_p": 0.8},
    "min-p": {"min_p": 0.05},
    "XTC always": {"xtc_probability": 1.0, "xtc_threshold": 0.1},
    "XTC at times": {"xtc_probability": 0.5, "xtc_threshold": 0.1},
    "XTC seldom": {"xtc_probability": 0.1, "xtc_threshold": 0.05},
    "top-k": {"top_k": 12},
    "grammar": {"grammar": Grammar("regex", " (was|is) [a-z ]+")},
    **{f"XTC as in {order}": {"xtc_probability": 0.5, "sampler_order": order} for order in ORDERS},
    **{f"preset {name}": dict(values) for name, values in SHIPPED.items()},
}


@pytest.mark.parametrize("name", STAGES)
def test_whatever_stage_draws_comes_as_often_as_is_stated(zoo: Zoo, name: str) -> None:
    batch = Batch(source(zoo, "pocket"))
    batch.do(protocol.Prefill("Tim saw a little", chat=False))
    batch.do(protocol.Configure(check(Settings(**{"temp": 1.0, "seed": 3, **STAGES[name]}))))
    counted = batch.of(DrawsCounted, batch.do(protocol.DrawMany(1000, tokens=1, size=32)))[0]
    assert sum(each.prob for each in counted.outcomes) + counted.others_prob == pytest.approx(1)
    assert sum(each.count for each in counted.outcomes) + counted.others == 1000
    assert counted.p_value > 1e-3
    assert counted.tossed == (0 < STAGES[name].get("xtc_probability", 0) < 1)


@pytest.mark.slow
def test_two_thousand_continuations(zoo: Zoo) -> None:
    """Each of four tokens: the second tokens, too, come as often as the sampler says after the first."""
    batch = begun(zoo)
    batch.do(protocol.DrawMany(2000, tokens=4, size=64))
    assert len(batch.ids) == 2000
    first = Counter(ids[0] for ids in batch.ids.values()).most_common(1)[0][0]
    batch.do(protocol.Prefill(PROMPT, chat=False))
    batch.do(protocol.Choose(batch.of(protocol.Prefilled)[-1].next.node, first))
    expected = batch.of(DrawsCounted, batch.do(protocol.DrawMany(10)))[0]
    seconds = Counter(ids[1] for ids in batch.ids.values() if ids[0] == first)
    total = sum(seconds.values())
    for each in expected.outcomes:
        low, high = wilson(seconds[each.id], total, z=4.0)
        assert low <= each.prob <= high


def test_a_biased_sampler_would_be_seen(zoo: Zoo, monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.logits import node_sampler

    whole = node_sampler.uniform
    monkeypatch.setattr(node_sampler, "uniform", lambda *args: whole(*args) ** 1.6)
    batch = begun(zoo)
    batch.do(protocol.Configure(replace(CREATIVE, top_p=1.0, temp=1.6)))
    counted = batch.of(DrawsCounted, batch.do(protocol.DrawMany(400)))[0]
    assert counted.p_value < 1e-3


@pytest.mark.parametrize(
    ("count", "draws", "interval"),
    [(0, 10, (0.0, 0.2775)), (5, 10, (0.2366, 0.7634)), (10, 10, (0.7225, 1.0))],
)
def test_wilsons_interval(count: int, draws: int, interval: tuple[float, float]) -> None:
    assert wilson(count, draws) == pytest.approx(interval, abs=1e-4)


@pytest.mark.parametrize(
    ("value", "degrees", "chance"),
    [
        (3.841459, 1, 0.05),
        (18.307038, 10, 0.05),
        (2.0, 2, math.exp(-1)),
        (135.807, 100, 0.01),
        (0.0, 4, 1.0),
        (1e4, 3, 0.0),
    ],
)
def test_the_tail_of_chi_square(value: float, degrees: int, chance: float) -> None:
    assert chi_square_tail(value, degrees) == pytest.approx(chance, abs=2e-6)


def test_the_kv_of_each_draw_grows_with_its_tokens(zoo: Zoo) -> None:
    session = sessions.begun(zoo.load("llama"), range(5, 13))
    rows = rows_of(session.runner, session.logits)
    list(rows.begin([(), ()]))
    used, each = session.kv.reading().used_bytes, session.kv.bytes_per_token() or 0
    for step in range(3):
        assert rows.read() == [LaneKV(8 + step, 8 + step, used + step * each, 0)] * 2
        rows.forward([7, 8])


@pytest.mark.parametrize(
    ("probs", "counts", "draws", "value", "degrees"),
    [
        ((0.5, 0.3, 0.2), (45, 35, 20), 100, 25 / 50 + 25 / 30, 2),
        ((0.5, 0.3, 0.2), (45, 35, 20), 1000, math.inf, 2),
        ((0.5, 0.5), (10, 9, 1), 20, math.inf, 1),
        ((0.6, 0.3, 0.04, 0.06), (55, 35, 4, 6), 100, 25 / 60 + 25 / 30, 2),
        ((0.9, 0.06, 0.04), (90, 5, 5), 100, 0.0, 1),
    ],
)
def test_pearsons_chi_square_has_cells_of_five_draws_at_least(
    probs: tuple[float, ...], counts: tuple[int, ...], draws: int, value: float, degrees: int
) -> None:
    found = _chi_square(probs, Counter(dict(enumerate(counts))), draws)
    assert found == (pytest.approx(value), degrees)


def test_the_ends_of_the_tail_of_chi_square() -> None:
    assert [chi_square_tail(value, 3) for value in (0.0, math.inf)] == [1.0, 0.0]


def test_the_ends_of_an_interval_that_nothing_or_everything_reaches_are_exact() -> None:
    for draws in (1, 3, 40, 2_000, 10_007):
        assert wilson(0, draws)[0] == 0.0 < wilson(0, draws)[1] < 1.0
        assert wilson(draws, draws)[1] == 1.0 > wilson(draws, draws)[0] > 0.0
