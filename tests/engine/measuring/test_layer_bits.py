"""Layers quantized alone and mixes of bits: against plain MLX, against a second model, and the weights put back."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx.utils import tree_flatten
from mlx_lm import utils

from engine import protocol
from engine.measuring import layer_bits
from engine.protocol import BitMix, LayerBits, LayerBitsEnded, MeasureLayerBits
from engine.settings import LoadSettings
from tests.engine.lockstep.rig import TEXT
from tests.engine.unthreaded import Unthreaded
from tests.zoo import Zoo

BITS = MeasureLayerBits((TEXT,), bits=3, group_size=32, high_bits=6, shares=(0.25,))


def plain_logprobs(model: Any, ids: list[int]) -> Any:
    """The float64 log-softmax of one plain forward over all ids, before each but the first."""
    rows = np.array(model(mx.array([ids]))[0, :-1].astype(mx.float32)).astype(np.float64)
    rows -= rows.max(-1, keepdims=True)
    return rows - np.log(np.exp(rows).sum(-1, keepdims=True))


def kl(one: Any, other: Any) -> Any:
    return (np.exp(one) * (one - other)).sum(-1)


def weights_of(model: Any) -> dict[str, Any]:
    return {name: np.array(array.astype(mx.float32)) for name, array in tree_flatten(model.parameters())}


@pytest.fixture
def tiny(zoo: Zoo) -> Unthreaded:
    return Unthreaded(zoo.load("llama"))


def test_a_layer_alone_is_what_plain_mlx_makes_of_it(tiny: Unthreaded) -> None:
    found = tiny.do(BITS)
    alone = {each.path: each for each in tiny.of(LayerBits, found)}
    folder = Path(tiny.context.model.facts.path)
    ids = tiny.context.model.tokens.encode(TEXT)
    plain, _ = utils.load_model(folder)
    one = plain_logprobs(plain, ids)
    paths = [
        path
        for path, module in tree_flatten(plain.leaf_modules(), is_leaf=nn.Module.is_module)
        if hasattr(module, "to_quantized")
    ]
    assert sorted(alone) == sorted(paths)
    assert tiny.of(LayerBitsEnded, found)[0].tokens == len(ids) - 1
    for path in paths:
        model, _ = utils.load_model(folder)
        nn.quantize(model, 32, 3, class_predicate=lambda name, _, path=path: name == path)
        other = plain_logprobs(model, ids)
        values = kl(one, other)
        assert alone[path].kl_nats == pytest.approx(values.mean(), rel=2e-3, abs=1e-8)
        assert alone[path].kl_error == pytest.approx(
            values.std(ddof=1) / math.sqrt(len(values)), rel=2e-3, abs=1e-8
        )
        assert alone[path].same_top == pytest.approx(
            (one.argmax(-1) == other.argmax(-1)).mean(), abs=1 / len(values)
        )


@pytest.mark.wide(1)
@pytest.mark.parametrize("family", ["llama", "gpt-oss"])
def test_the_weights_are_put_back(zoo: Zoo, family: str) -> None:
    engine = Unthreaded(zoo.load(family), prompt="Once upon a time")
    model = engine.context.model.model
    before, logits = weights_of(model), np.array(engine.session.logits)
    arrays = {name: id(array) for name, array in tree_flatten(model.parameters())}
    found = engine.do(BITS)
    assert len(engine.of(LayerBits, found)) > 10
    after = weights_of(model)
    assert before.keys() == after.keys()
    assert all((before[name] == after[name]).all() for name in before)
    assert arrays == {name: id(array) for name, array in tree_flatten(model.parameters())}
    again = engine.one(protocol.Verify(), protocol.Verified)
    assert again.largest_difference == 0
    assert (engine.session.logits == logits).all()


def test_a_measurement_that_is_stopped_puts_the_weights_back(tiny: Unthreaded) -> None:
    model = tiny.context.model.model
    before = weights_of(model)
    for many in (0, 3, 16):
        seen: list[protocol.Record] = []

        def enough(record: protocol.Record, many: int = many, seen: list[protocol.Record] = seen) -> bool:
            seen += [record] if isinstance(record, protocol.Measuring) else []
            return len(seen) > many

        tiny.cancel_when = enough
        found = tiny.do(BITS.renewed())
        assert found[-1] == protocol.Ended("MeasureLayerBits", cancelled=True)
        assert len(tiny.of(LayerBits, found)) == min(max(many - 1, 0), 15)
        after = weights_of(model)
        assert all((before[name] == after[name]).all() for name in before)


def test_a_failure_in_a_reading_puts_the_weights_back(
    tiny: Unthreaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny.context.model.model
    before = weights_of(model)

    def fails(one: Any, other: Any) -> float:
        raise RuntimeError("no memory")

    monkeypatch.setattr(layer_bits, "kl_nats", fails)
    failure = tiny.one(BITS.renewed(), protocol.Failure)
    assert "no memory" in failure.message
    after = weights_of(model)
    assert all((before[name] == after[name]).all() for name in before)


def test_mixes_raise_the_best_layers_that_fit(tiny: Unthreaded) -> None:
    found = tiny.do(BITS)
    alone, (low, ours, theirs) = tiny.of(LayerBits, found), tiny.of(BitMix, found)
    (ended,) = tiny.of(LayerBitsEnded, found)
    assert (low.by, low.share, low.high, low.parameters) == ("kl", 0, (), 0)
    assert (ours.by, theirs.by) == ("kl", "mlx_lm")
    total = sum(each.parameters for each in alone)
    sizes = {each.path: each.parameters for each in alone}
    rankings = {
        "kl": sorted(alone, key=lambda each: -each.kl_nats / each.parameters),
        "mlx_lm": sorted(alone, key=lambda each: -dict(ended.sensitivities)[each.path]),
    }
    for mix in (ours, theirs):
        assert mix.parameters == sum(sizes[path] for path in mix.high) <= 0.25 * total
        order = [each.path for each in rankings[mix.by]]
        assert list(mix.high) == sorted(mix.high, key=order.index)
        left = 0.25 * total - mix.parameters
        assert all(sizes[path] > left for path in order if path not in mix.high)
        assert mix.kl_nats < low.kl_nats
        assert mix.bits_per_weight == pytest.approx(3 + 3 * mix.parameters / total + 64 / 32)


@pytest.mark.slow
def test_all_layers_at_once_are_a_second_model_of_these_bits(zoo: Zoo) -> None:
    """With the layers that a family decides about itself: here the routers, 8 bits."""
    for family in ("llama", "gpt-oss"):
        engine = Unthreaded(zoo.load(family))
        found = engine.do(BITS)
        low, (ended,) = engine.of(BitMix, found)[0], engine.of(LayerBitsEnded, found)
        assert bool(ended.fixed) == (family == "gpt-oss")
        engine.one(
            protocol.OpenLockstep(engine.context.model.settings, bits=3, group_size=32),
            protocol.LockstepOpened,
        )
        read = engine.of(protocol.LockstepRead, engine.do(protocol.DiffText(TEXT)))
        values = [span.kl_nats for each in read for span in each.spans if span.kl_nats is not None]
        assert low.kl_nats == pytest.approx(np.mean(values), rel=2e-3)
        assert ended.tokens == len(values)


@pytest.mark.slow
def test_windows_are_those_of_a_comparison(tiny: Unthreaded) -> None:
    command = MeasureLayerBits((TEXT, TEXT[:40]), bits=4, group_size=32, shares=(), window=20)
    found = tiny.do(command)
    tiny.one(
        protocol.OpenLockstep(tiny.context.model.settings, bits=4, group_size=32), protocol.LockstepOpened
    )
    values = [
        span.kl_nats
        for text in command.texts
        for each in tiny.of(protocol.LockstepRead, tiny.do(protocol.DiffText(text, window=20)))
        for span in each.spans
        if span.kl_nats is not None
    ]
    (low,) = tiny.of(BitMix, found)
    assert tiny.of(LayerBitsEnded, found)[0].tokens == len(values)
    assert low.kl_nats == pytest.approx(np.mean(values), rel=2e-3)


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (MeasureLayerBits((TEXT,), bits=7), "can't be quantized to 7 bits"),
        (MeasureLayerBits((TEXT,), bits=4, high_bits=4), "4 bits are not more than 4"),
        (MeasureLayerBits(("a",)), "no token to score"),
        (MeasureLayerBits(()), "no token to score"),
        (MeasureLayerBits((TEXT,), window=3), "A window of 3 tokens is too short"),
    ],
)
def test_what_can_not_be_measured_is_refused(zoo: Zoo, command: MeasureLayerBits, told: str) -> None:
    engine = Unthreaded(zoo.load("qwen3"))
    failure = engine.one(command.renewed(), protocol.Failure)
    assert told in failure.message
    assert failure.expected
    assert failure.hint


def test_a_quantized_model_is_refused(tmp_path: Path) -> None:
    from mlx_lm import convert

    from engine import pocket

    convert(str(pocket.directory()), str(tmp_path / "q"), quantize=True, q_bits=4)
    engine = Unthreaded(LoadSettings(model=str(tmp_path / "q")))
    failure = engine.one(BITS.renewed(), protocol.Failure)
    assert "quantized already" in failure.message
    assert failure.hint == "Open the model that it was made from."


def test_what_mlx_lm_can_not_estimate_is_said(zoo: Zoo) -> None:
    """Rows of 64 are in no groups of 128: mlx_lm's estimate takes all layers all the same."""
    engine = Unthreaded(zoo.load("qwen3"))
    found = engine.do(MeasureLayerBits((TEXT,), group_size=128, shares=(0.5,)))
    assert {each.path.rpartition(".")[2] for each in engine.of(LayerBits, found)} == {"o_proj", "down_proj"}
    (ended,) = engine.of(LayerBitsEnded, found)
    assert {(each.bits, each.path.rpartition(".")[2]) for each in ended.fixed} >= {(None, "q_proj")}
    assert "mlx_lm's sensitivities are left out: it can't estimate them here" in ended.notes[0]


def test_without_memory_what_needs_it_is_left_out(tiny: Unthreaded, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = 200 * 4 * 4096
    monkeypatch.setattr(layer_bits, "free_bytes", lambda: rows)
    monkeypatch.setattr(layer_bits, "ESTIMATE_TAKES", 100)
    found = tiny.do(BITS.renewed())
    assert len(tiny.of(BitMix, found)) == 2
    (ended,) = tiny.of(LayerBitsEnded, found)
    assert (len(ended.notes), ended.sensitivities) == (1, ())
    assert "mlx_lm's sensitivities are left out" in ended.notes[0]
    monkeypatch.setattr(layer_bits, "free_bytes", lambda: 1000)
    failure = tiny.one(BITS.renewed(), protocol.Failure)
    assert "more than half of what is free" in failure.message
