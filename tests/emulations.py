"""Machines that compute otherwise, emulated on this one: TF32 products, and bfloat16 sums in another order.

A GPU's products of several rows are the ones that differ; those of one row are sums in float32 there, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import pytest

from engine.model.forward import product_error

Product = Callable[..., mx.array]
Other = Callable[[Product, mx.array, mx.array], mx.array]
"""From MLX's own product and two arrays to another product of them."""


@contextmanager
def multiplying(other: Other) -> Iterator[None]:
    """Replace the products of several rows by others, made of MLX's own.

    Args:
        other: Makes them.
    """
    own = mx.matmul

    def matmul(one: mx.array, two: mx.array, **_: Any) -> mx.array:
        several = one.ndim > 1 and two.ndim > 1 and one.shape[-2] > 1 and two.shape[-1] > 1
        return other(own, one, two) if several else own(one, two)

    def addmm(to: mx.array, one: mx.array, two: mx.array, **_: Any) -> mx.array:
        return matmul(one, two) + to

    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(mx, "matmul", matmul)
            patch.setattr(mx, "addmm", addmm)
            patch.setattr(mx.array, "__matmul__", matmul)
            product_error.cache_clear()
            yield
    finally:
        product_error.cache_clear()


def tf32(own: Product, one: mx.array, two: mx.array) -> mx.array:
    """A product of two arrays whose numbers keep 11 of 24 bits."""

    def cut(array: mx.array) -> mx.array:
        if array.dtype != mx.float32:
            return array
        return ((array.view(mx.uint32) + 0x1000) & 0xFFFFE000).view(mx.float32)

    return own(cut(one), cut(two))


def in_another_order(own: Product, one: mx.array, two: mx.array) -> mx.array:
    """A product whose float32 sums are off by 3e-7 of the largest before they are rounded to bfloat16."""
    if one.dtype != mx.bfloat16:
        return own(one, two)
    wide = own(one.astype(mx.float32), two.astype(mx.float32))
    noise = mx.random.normal(wide.shape, key=mx.random.key(wide.shape[-2]))
    return (wide + 3e-7 * mx.abs(wide).max() * noise).astype(mx.bfloat16)
