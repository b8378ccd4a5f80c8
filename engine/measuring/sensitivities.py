"""mlx_lm's own estimate of what a layer's bits are worth, as mlx_lm.dynamic_quant makes it; no progress bar."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
from mlx_lm.quant import dynamic_quant

from engine.errors import Cancelled
from engine.protocol import MeasureLayerBits
from engine.task import Stopped


def estimated(
    model: Any, samples: Sequence[Sequence[int]], command: MeasureLayerBits, stopped: Stopped
) -> dict[str, float]:
    """The gain of a layer's higher bits, to first order, by path: for a million parameters.

    Args:
        model: Of plain weights; mlx_lm works on a copy.
        samples: Token ids of sequences. Each is estimated alone, so that it can be stopped between them: a mean over
            tokens, as mlx_lm's is over batches of equal sequences.
        command: The bits.
        stopped: Polled before each of them.

    Raises:
        Cancelled: `stopped` returned True.
    """
    sums: dict[str, float] = {}
    low, high, group = command.bits, command.high_bits, command.group_size
    tokens = sum(map(len, samples))
    with _quiet():
        for ids in samples:
            if stopped():
                raise Cancelled
            found = dynamic_quant.estimate_sensitivities(
                model, mx.array([list(ids)]), low, group, high, group, batch_size=1
            )
            for path, value in found:
                sums[path] = sums.get(path, 0.0) + value * len(ids) / tokens
            mx.clear_cache()
    return sums


@contextmanager
def _quiet() -> Iterator[None]:
    """No progress bar: standard error may be a screen."""
    bar = dynamic_quant.tqdm
    dynamic_quant.tqdm = lambda steps, **_: steps
    try:
        yield
    finally:
        dynamic_quant.tqdm = bar
