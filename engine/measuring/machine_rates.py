"""What this machine reaches through MLX: memory bandwidth, and operations a second of a matrix product.

Measured, not looked up: on the CPU backend MLX is far from the processor's peak, and it is MLX that runs the
model. What an evaluation of nothing takes, some 0.2 ms on a Mac and 40 us on CUDA, is not counted: a large GPU reads
128 MiB in less.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from engine.errors import Cancelled
from engine.frozen import frozen
from engine.model.forward import Stopped
from engine.protocol import ModelFacts

ARRAY_BYTES = 128 * 2**20
"""Larger than most processors' caches."""
MOST_TIMES = 64
"""An array is read in one evaluation at most."""
EVALUATIONS = 20
"""Of nothing, which the reads of one evaluation take at least as long as."""
BANDWIDTH_SECONDS = 0.4
MATMUL_SECONDS = 0.5
LONG_ENOUGH = 0.04
"""Seconds of a matrix product from which on a larger one gives no higher rate."""
SMALLEST, LARGEST = 256, 8192
"""Rows of the matrices."""


@frozen
class Rate:
    """The best of some measurements, and how it was taken."""

    value: float
    """In 10^9 a second."""
    median: float
    """Of the same measurements."""
    how: str


def bandwidth(stopped: Stopped) -> Rate:
    """Bytes read and written a second, the best of several ways to go through an array of 128 MiB.

    Raises:
        Cancelled: `stopped` returned True.
    """
    array = mx.ones((ARRAY_BYTES // 4,), dtype=mx.float32)
    mx.eval(array)
    ways: dict[str, tuple[int, Callable[[int], list[mx.array]]]] = {
        "reading it for its largest number": (1, lambda times: [mx.max(array) for _ in range(times)]),
        "reading it for its sum": (1, lambda times: [mx.sum(array) for _ in range(times)]),
        "reading it and writing its negative": (2, lambda times: [_negated(array, times)]),
    }
    nothing = _nothing()
    rates: dict[str, list[float]] = {name: [] for name in ways}
    times = dict.fromkeys(ways, 1)
    for name in _in_turn(list(ways), BANDWIDTH_SECONDS, stopped):
        factor, run = ways[name]
        while (took := _seconds(partial(run, times[name]))) < EVALUATIONS * nothing and times[
            name
        ] < MOST_TIMES:
            times[name] *= 2
        rates[name].append(factor * times[name] * ARRAY_BYTES / _net(took, nothing) / 1e9)
    name = max(rates, key=lambda way: max(rates[way]))
    mx.clear_cache()
    return _best(
        rates[name],
        f"an array of {ARRAY_BYTES // 2**20} MiB of float32, {name}, {times[name]} times in one evaluation less one of "
        "nothing: the best of its repeats",
    )


def _negated(array: mx.array, times: int) -> mx.array:
    """An array written anew so often, each time from the one before."""
    for _ in range(times):
        array = mx.negative(array)
    return array


def _nothing() -> float:
    """Seconds of an evaluation with next to nothing to compute."""
    one = mx.ones((1,))
    mx.eval(one)
    return min(_seconds(lambda: [mx.negative(one)]) for _ in range(8))


def _net(seconds: float, nothing: float) -> float:
    """Seconds of an evaluation without those of nothing; no less than half, where both are as short."""
    return max(seconds - nothing, seconds / 2)


def matmul(model: Any, facts: ModelFacts, stopped: Stopped) -> Rate:
    """Operations a second of a square matrix product in the weights' own type, the best of growing sizes.

    Raises:
        Cancelled: `stopped` returned True.
    """
    quantized = next((m for _, m in model.named_modules() if isinstance(m, nn.QuantizedLinear)), None)
    dtype = getattr(mx, facts.dtype)
    ends, nothing = time.perf_counter() + MATMUL_SECONDS, _nothing()
    rows, rates, at, run, took = SMALLEST, [0.0], SMALLEST, None, 0.0
    # the next product takes eight times as long: it has to fit into the remaining time
    while run is None or (rows < LARGEST and took < LONG_ENOUGH and time.perf_counter() + 8 * took < ends):
        if stopped():
            raise Cancelled
        rows = rows if run is None else 2 * rows
        run = _product(rows, dtype, quantized)
        times = [_net(_seconds(run), nothing) for _ in range(2)]
        took = min(times)
        if 2 * rows**3 / took > max(rates):
            rates, at = [2 * rows**3 / each for each in times], rows
    run = run if at == rows else _product(at, dtype, quantized)
    for _ in _in_turn([""], ends - time.perf_counter(), stopped):
        rates.append(2 * at**3 / _net(_seconds(run), nothing))
    mx.clear_cache()
    kind = facts.quantization if quantized is not None else facts.dtype
    return _best(
        [rate / 1e9 for rate in rates],
        f"the product of two matrices of {at} x {at}, weights in {kind}: the best of its repeats",
    )


def _best(rates: list[float], how: str) -> Rate:
    return Rate(max(rates), statistics.median(rates), how)


def _product(rows: int, dtype: mx.Dtype, like: Any) -> Callable[[], list[mx.array]]:
    """A product of two square matrices, the second quantized like the layer `like`, if given."""
    x, w = (mx.random.normal((rows, rows), key=mx.random.key(n)).astype(dtype) for n in (0, 1))
    if like is None:
        mx.eval(x, w)
        return lambda: [x @ w]
    kind = {"group_size": like.group_size, "bits": like.bits, "mode": getattr(like, "mode", "affine")}
    packed = mx.quantize(w, **kind)
    mx.eval(x, packed)
    return lambda: [mx.quantized_matmul(x, *packed, transpose=True, **kind)]


def _in_turn(names: list[str], seconds: float, stopped: Stopped) -> Iterator[str]:
    """Names in turn, all at least once, until the time is up."""
    ends, turn = time.perf_counter() + seconds, 0
    while turn < len(names) or time.perf_counter() < ends:
        if stopped():
            raise Cancelled
        yield names[turn % len(names)]
        turn += 1


def _seconds(run: Callable[[], list[mx.array]]) -> float:
    begun = time.perf_counter()
    mx.eval(run())
    return time.perf_counter() - begun
