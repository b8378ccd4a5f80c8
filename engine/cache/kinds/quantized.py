"""Quantized KV caches: plain ones whose numbers are packed, with a scale and a bias for each group of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
from mlx_lm.models import cache as caches

from engine.cache.kinds.kind import Array
from engine.cache.kinds.plain import Plain


class Quantized(Plain):
    """As plain, with six buffers: packed values, scales and biases of the keys, then of the values."""

    name = "quantized"
    cache_class = caches.QuantizedKVCache
    quantizable = False
    quantized = True

    def _append(self, cache: Any, columns: Sequence[Array], at: int, end: int) -> None:
        """Write packed columns: mlx_lm's own `update_and_fetch` would quantize them again."""
        missing = end - cache.keys[0].shape[2]
        if missing > 0:
            block = -(-missing // cache.step) * cache.step
            cache.keys, cache.values = (
                tuple(_grown(buffer, block) for buffer in side) for side in (cache.keys, cache.values)
            )
        for buffer, column in zip(self.buffers(cache), columns, strict=True):
            buffer[..., at:end, :] = column
        cache.offset = end


def _grown(buffer: Array, block: int) -> Array:
    """A buffer of shape (1, heads, tokens, n) with room for `block` more tokens."""
    shape = (*buffer.shape[:2], block, *buffer.shape[3:])
    return mx.concatenate([buffer, mx.zeros(shape, buffer.dtype)], axis=2)
