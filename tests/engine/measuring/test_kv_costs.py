"""Quantized KV for the panel: bytes as the formula gives, the change of the logits, refusals that say why."""

from __future__ import annotations

import time
from collections import Counter

import mlx.core as mx
import numpy as np
import pytest

from engine.errors import Cancelled, SettingsError, StepError
from engine.measuring.caches import compare_kv
from engine.protocol import CompareKV, KVCompared, Measuring
from engine.session.session import Session
from engine.settings import Settings
from tests.engine.measuring.rig import measure
from tests.engine.sessions import begun
from tests.zoo import Zoo

PROMPT = list(range(7, 47))
STEPS = 5


def opened(zoo: Zoo, name: str, **load: object) -> Session:
    """A session some steps behind its prompt."""
    return begun(zoo.load(name, **load), PROMPT, steps=STEPS)


def compared(zoo: Zoo, name: str, session: Session | None = None, **asked: object) -> KVCompared:
    """The whole comparison."""
    found = list(measure(compare_kv, zoo.load(name), session or opened(zoo, name), CompareKV(**asked)))  # type: ignore[arg-type]
    told = [each for each in found if isinstance(each, KVCompared)]
    assert [each.last for each in told] == [False] * (len(told) - 1) + [True]
    assert [len(each.costs) for each in told] == list(range(1, len(told) + 1))
    return told[-1]


HELD = len(PROMPT) + STEPS
SHAPES = {"pocket": (8, 2, 64), "llama": (2, 2, 32), "llama:bfloat16": (2, 2, 32)}
"""Layers, KV heads, head size."""


@pytest.mark.wide(1)
@pytest.mark.parametrize("name", list(SHAPES))
def test_the_bytes_are_those_of_the_formula(zoo: Zoo, name: str) -> None:
    layers, heads, size = SHAPES[name]
    facts = zoo.load(name).facts
    itemsize = {"float32": 4, "bfloat16": 2}[facts.dtype]
    assert (facts.layers, facts.kv_heads, facts.head_size) == (layers, heads, size)
    own, eight, four = compared(zoo, name).costs
    assert own.bits == 8 * itemsize
    assert own.used_bytes == own.formula_bytes == HELD * layers * 2 * heads * size * itemsize
    for cost, bits in ((eight, 8), (four, 4)):
        assert (cost.bits, cost.group_size) == (bits, min(size, 64))
        scales = 2 * itemsize * size // min(size, 64)
        by_hand = HELD * layers * 2 * heads * (size * bits // 8 + scales)
        assert cost.used_bytes == cost.formula_bytes == by_hand
        assert cost.allocated_bytes > cost.used_bytes


def test_fewer_bits_change_the_logits_more(zoo: Zoo) -> None:
    own, eight, four = compared(zoo, "llama").costs
    assert own.largest_change == own.mean_change == 0
    assert 0 < eight.mean_change < eight.largest_change
    assert 2 * eight.mean_change < four.mean_change
    assert 2 * eight.largest_change < four.largest_change
    assert eight.same_top


def test_the_change_is_that_of_a_session_with_such_a_cache(zoo: Zoo) -> None:
    load = {"kv_bits": 4, "kv_group_size": 32, "quantized_kv_start": 0}
    plain = opened(zoo, "llama")
    other = begun(zoo.load("llama", **load), PROMPT)
    for token in plain.tree.tokens(plain.node)[len(PROMPT) :]:
        other.choose(token)
    change = np.abs(plain.logits - other.logits)
    *_, four = compared(zoo, "llama", plain).costs
    assert four.largest_change == pytest.approx(float(change.max()), rel=1e-3)
    assert four.mean_change == pytest.approx(float(change.mean()), rel=1e-3)


def test_the_session_is_left_alone(zoo: Zoo) -> None:
    session, twin = opened(zoo, "llama"), opened(zoo, "llama")
    compared(zoo, "llama", session)
    assert session.step().id == twin.step().id
    assert np.array_equal(session.logits, twin.logits)


def test_a_session_that_is_quantized_is_set_against_the_models_own_type(zoo: Zoo) -> None:
    load = {"kv_bits": 4, "kv_group_size": 32, "quantized_kv_start": 0}
    found = list(
        measure(compare_kv, zoo.load("llama", **load), opened(zoo, "llama", **load), CompareKV((4,)))
    )
    last = found[-1]
    assert [cost.bits for cost in last.costs] == [32, 4]
    assert last.costs[1].largest_change > 0


def test_other_caches_of_a_model_stay_as_they_are_and_it_is_said(zoo: Zoo) -> None:
    own, eight = compared(zoo, "gemma3", bits=(8,)).costs
    assert eight.used_bytes == eight.formula_bytes < own.used_bytes == own.formula_bytes
    assert "rotating stay as they are" in eight.note


@pytest.mark.parametrize(
    ("name", "group", "said"),
    [
        ("gpt2", None, "heads of this model have 16 numbers, which can't be cut into groups of 32, 64, 128"),
        ("deepseek-v2", 64, "can't be cut into groups of 64. Use --kv-group-size 32"),
        ("mamba2", None, "Caches of kind recurrent can't be quantized in mlx-lm: only plain ones can."),
        (
            "gpt-oss",
            None,
            "attention can't use a quantized KV cache (Quantized SDPA does not support attention sinks)",
        ),
    ],
)
def test_what_can_not_be_quantized_is_refused_with_the_reason(
    zoo: Zoo, name: str, group: int | None, said: str
) -> None:
    own, eight, four = compared(zoo, name, group_size=group).costs
    assert own.refused == ""
    for cost in (eight, four):
        assert said in cost.refused
        assert (cost.used_bytes, cost.formula_bytes, cost.largest_change) == (0, 0, 0.0)


def test_a_backend_without_the_product_is_refused_with_its_reason(
    zoo: Zoo, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = opened(zoo, "llama")

    def none(*_: object, **__: object) -> None:  # as MLX 0.32.4 on CUDA
        raise RuntimeError("[quantized_matmul] No implementation for problem shape: 1x40x32x4")

    monkeypatch.setattr(mx, "quantized_matmul", none)
    own, *packed = compared(zoo, "llama", session).costs
    assert own.refused == ""
    assert all("No implementation for problem shape" in cost.refused for cost in packed)


def test_a_window_of_max_kv_size_is_refused_too(zoo: Zoo) -> None:
    load = {"max_kv_size": 32}
    found = list(measure(compare_kv, zoo.load("gpt2", **load), opened(zoo, "gpt2", **load), CompareKV((8,))))
    last = found[-1]
    assert "rotating can't be quantized" in last.costs[1].refused


@pytest.mark.parametrize(("asked", "said"), [({"bits": (7,)}, "not 7"), ({"group_size": 48}, "not 48")])
def test_bits_and_groups_that_do_not_exist(zoo: Zoo, asked: dict[str, object], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        compared(zoo, "llama", **asked)


def test_it_needs_a_prompt_tells_how_far_it_is_and_can_be_stopped(zoo: Zoo) -> None:
    loaded = zoo.load("llama")
    with pytest.raises(StepError, match="no prompt"):
        next(measure(compare_kv, loaded, Session(loaded, Settings()), CompareKV()))
    first = next(measure(compare_kv, loaded, opened(zoo, "llama"), CompareKV()))
    assert first == Measuring("CompareKV", 0, HELD, "the model's own type")
    with pytest.raises(Cancelled):
        list(measure(compare_kv, loaded, opened(zoo, "llama"), CompareKV(), lambda: True))


def test_progress_is_told_a_few_times_a_second_and_not_for_each_token(zoo: Zoo) -> None:
    session = begun(zoo.load("llama"), PROMPT, steps=3 * STEPS)
    begun_at = time.perf_counter()
    told = Counter(
        each.detail
        for each in measure(compare_kv, zoo.load("llama"), session, CompareKV())
        if isinstance(each, Measuring)
    )
    took = time.perf_counter() - begun_at
    assert len(told) == 3
    assert all(1 <= times <= 1 + 5 * took for times in told.values()), (told, took)
