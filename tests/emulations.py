"""Machines that compute otherwise, emulated on this one: TF32 products, bfloat16 sums in another order, compiling.

A GPU's products of several rows are the ones that differ; those of one row are sums in float32 there, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
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
        return other(own, one, two) if _several(one, two) else own(one, two)

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


def _several(one: mx.array, two: mx.array) -> bool:
    """Whether a product has several rows: those of a batch, too, which MLX joins where all have the same matrix."""
    if one.ndim < 2 or two.ndim < 2 or two.shape[-1] < 2:
        return False
    return one.size > one.shape[-1] if two.ndim == 2 else one.shape[-2] > 1


def tf32(own: Product, one: mx.array, two: mx.array) -> mx.array:
    """A product of two arrays whose numbers keep 11 of 24 bits, and so do those of its derivative's product."""
    return _returning_cut(own(_cut(one), _cut(two)))


def _cut(array: mx.array) -> mx.array:
    if array.dtype != mx.float32:
        return array
    fewer = ((array.view(mx.uint32) + 0x1000) & 0xFFFFE000).view(mx.float32)
    return array + mx.stop_gradient(fewer - array)  # exactly `fewer`, with the derivative of `array`


@mx.custom_function
def _returning_cut(array: mx.array) -> mx.array:
    """The same array; what a derivative hands back through it is cut."""
    return array


@_returning_cut.vjp
def _cut_back(array: mx.array, cotangent: mx.array, output: mx.array) -> mx.array:
    return _cut(cotangent)


def in_another_order(own: Product, one: mx.array, two: mx.array) -> mx.array:
    """A product whose float32 sums are off by 3e-7 of a row's largest before they are rounded to bfloat16."""
    if one.dtype != mx.bfloat16:
        return own(one, two)
    wide = own(one.astype(mx.float32), two.astype(mx.float32))
    noise = mx.random.normal(wide.shape, key=mx.random.key(wide.size // wide.shape[-1]))
    largest = mx.stop_gradient(mx.abs(wide).max(axis=-1, keepdims=True))
    return (wide + 3e-7 * largest * noise).astype(mx.bfloat16)


@contextmanager
def bfloat16() -> Iterator[None]:
    """Let mixtures of experts run in bfloat16, which MLX's CPU refuses: sums are float32's, rounded at the end."""
    own = mx.gather_mm

    def gather_mm(one: mx.array, two: mx.array, *indices: Any, **how: Any) -> mx.array:
        if one.dtype == mx.float32:
            return own(one, two, *indices, **how)
        return own(one.astype(mx.float32), two.astype(mx.float32), *indices, **how).astype(one.dtype)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mx, "gather_mm", gather_mm)
        yield


@contextmanager
def bfloat16_in_another_order() -> Iterator[None]:
    """Both: mixtures run in bfloat16, and the sums of several rows are in another order."""
    with bfloat16(), multiplying(in_another_order):
        yield


@contextmanager
def compiling() -> Iterator[None]:
    """Let the program take this machine's CPU for a GPU, so that it leaves the models' functions compiled.

    On Linux MLX compiles them with g++, a second or so for each function and shape.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mx, "default_device", lambda: mx.Device(mx.gpu))
        mx.enable_compile()
        try:
            yield
        finally:
            mx.disable_compile()


MACHINES: dict[str, tuple[Callable[[], AbstractContextManager[None]], mx.Dtype]] = {
    "TF32": (lambda: multiplying(tf32), mx.float32),
    "bfloat16": (bfloat16, mx.bfloat16),
    "bfloat16 in another order": (bfloat16_in_another_order, mx.bfloat16),
    "compiled": (compiling, mx.float32),
}
"""By name: what emulates a machine, and the type that a model's files have there."""
