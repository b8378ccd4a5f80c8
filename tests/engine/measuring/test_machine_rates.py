"""The machine's rates, on a machine that is not here: its evaluations cost more than what they compute."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import pytest

from engine.measuring import roofline
from engine.measuring.roofline import ARRAY_BYTES
from engine.task import never
from tests.zoo import Zoo


class LargeGPU:
    """A clock, and evaluations that move it: 40 us each, 4,000 GB/s, and 800 TFLOP/s in products.

    Nothing is computed: what an evaluation would do is counted in its graph.
    """

    NOTHING, BYTES, FLOPS = 4e-5, 4e12, 8e14

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        self.now += 1e-7
        return self.now

    def eval(self, *of: Any) -> None:
        arrays = [array for each in of for array in (each if isinstance(each, list | tuple) else [each])]
        graph = io.StringIO()
        mx.export_to_dot(graph, *arrays)
        text, size = graph.getvalue(), max(array.nbytes if array.ndim else ARRAY_BYTES for array in arrays)
        passes = sum(factor * text.count(f'label ="{name}"') for name, factor in PASSES.items())
        rows = arrays[0].shape[0] if arrays[0].ndim == 2 else 0
        products = text.count('label ="Matmul"')
        self.now += self.NOTHING + passes * size / self.BYTES + products * 2 * rows**3 / self.FLOPS


PASSES = {"Max": 1, "Sum": 1, "Negative": 2}
"""How often each goes through an array."""


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> LargeGPU:
    made = LargeGPU()
    monkeypatch.setattr(roofline, "time", SimpleNamespace(perf_counter=made.perf_counter))
    monkeypatch.setattr(roofline, "mx", Evaluating(made))
    return made


class Evaluating:
    """`mlx.core` but for its `eval`."""

    def __init__(self, gpu: LargeGPU) -> None:
        self.eval = gpu.eval

    def __getattr__(self, name: str) -> Any:
        return getattr(mx, name)


def test_the_bandwidth_is_the_memorys_and_not_that_of_an_evaluation(gpu: LargeGPU) -> None:
    """One read of 128 MiB takes 34 us there, and its evaluation more than twice that."""
    rate = roofline.memory_bandwidth(never)
    assert rate.value == pytest.approx(gpu.BYTES / 1e9, rel=0.02)
    assert rate.value >= rate.median


def test_products_are_counted_without_their_evaluation(gpu: LargeGPU, zoo: Zoo) -> None:
    loaded = zoo.load("llama")
    assert roofline.matmul_rate(loaded.model, loaded.facts, never).value == pytest.approx(
        gpu.FLOPS / 1e9, rel=0.01
    )
