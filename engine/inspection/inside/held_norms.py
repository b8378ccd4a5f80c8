"""Makes what a model does around its layers linear, for as long as one capture is taken apart.

A contribution can be pushed through a norm once the norm's scale is held: then it is linear. Several rows go through at
once, and the first is what the model itself computes: all rows are scaled as it is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import mlx.core as mx

from engine.model.layers import Patch, patched


@contextmanager
def held_norms(rows: int, *patches: Patch, dtype: mx.Dtype | None = None) -> Iterator[None]:
    """Hold the norms' scales at those of the first row, and run compiled functions uncompiled.

    Args:
        rows: How many go through together, along the first axis.
        patches: Others, set with them.
        dtype: That the norms return; None for that of what they are given.
    """
    norms: list[Patch] = [
        (mx.fast, "rms_norm", _rms_norm(rows, dtype)),
        (mx.fast, "layer_norm", _layer_norm(rows, dtype)),
    ]
    with _uncompiled(), patched(*norms, *patches):
        yield


def _rms_norm(rows: int, dtype: mx.Dtype | None) -> Callable[..., mx.array]:
    def rms_norm(x: mx.array, weight: mx.array | None, eps: float, **_: Any) -> mx.array:
        wide = x.astype(mx.float32)
        normed = wide * _held(mx.square(wide).mean(axis=-1, keepdims=True), eps, rows)
        return _affine(normed, weight, None).astype(dtype or x.dtype)

    return rms_norm


def _layer_norm(rows: int, dtype: mx.Dtype | None) -> Callable[..., mx.array]:
    def layer_norm(
        x: mx.array, weight: mx.array | None, bias: mx.array | None, eps: float, **_: Any
    ) -> mx.array:
        wide = x.astype(mx.float32)
        centred = wide - wide.mean(axis=-1, keepdims=True)
        normed = centred * _held(mx.square(centred).mean(axis=-1, keepdims=True), eps, rows)
        return _affine(normed, weight, bias).astype(dtype or x.dtype)

    return layer_norm


def _held(squares: mx.array, eps: float, rows: int) -> mx.array:
    """The scale of the first row; a constant to a derivative."""
    first = squares[:1] if squares.shape[0] == rows else squares
    return mx.stop_gradient(mx.rsqrt(first + eps))


def _affine(x: mx.array, weight: mx.array | None, bias: mx.array | None) -> mx.array:
    x = x if weight is None else x * weight.astype(mx.float32)
    return x if bias is None else x + bias.astype(mx.float32)


@contextmanager
def _uncompiled() -> Iterator[None]:
    """A compiled function would not see what is replaced, or would keep it for ever if it was traced meanwhile."""
    if mx.default_device() == mx.Device(mx.cpu) or "MLX_DISABLE_COMPILE" in os.environ:
        yield  # nothing is compiled, on a CPU see `engine.model.load`
        return
    mx.disable_compile()
    try:
        yield
    finally:
        mx.enable_compile()
