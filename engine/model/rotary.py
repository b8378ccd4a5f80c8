"""Rotary position embeddings on a CPU: the layers of a forward share the cosines and sines of its positions.

MLX has no CPU kernel for `mx.fast.rope`: each call becomes 29 operations, two thirds of which make the cosines and
sines of its positions, the same ones for the queries and the keys of every layer. Of the 1,113 operations in a step of
the bundled model they were 464, and are 140: a step takes 0.7 of its time where two cores share little.

The numbers stay MLX's, bit for bit: its own function makes the cosines and sines, of the pair (1, 0), and what is done
with them are its products and sums, of which a difference is the sum with the negated product.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import mlx.core as mx

from engine.model.layers import patched

rope = mx.fast.rope
"""MLX's own: within a forward, the attribute is another function."""
Factors = tuple[mx.array, mx.array]
"""For the pairs of a head's numbers the cosines, and the sines that their partners are multiplied by, with a sign."""


def shared_rotations() -> AbstractContextManager[None]:
    """A block for one forward, in which its layers share cosines and sines.

    It changes nothing on a GPU, which has a kernel, nor while something else stands in the place of `mx.fast.rope`.
    """
    if mx.fast.rope is not rope or mx.default_device() != mx.Device(mx.cpu):
        return nullcontext()
    return patched((mx.fast, "rope", _Rotations().rope))


class _Rotations:
    """The cosines and sines of one forward, by what they depend on."""

    def __init__(self) -> None:
        self._made: dict[tuple[Any, ...], Factors] = {}
        self._wide: dict[tuple[Any, ...], Factors] = {}
        """For arrays of one shape, so that no product has to broadcast them."""
        self._kept: list[Any] = []
        """Arrays that are known by their ids, which may not go to others."""

    def rope(self, a: mx.array, dims: int, *, offset: Any, traditional: bool, **how: Any) -> mx.array:
        """As MLX's, which does it itself where a part of the head isn't rotated.

        Args:
            a: Queries or keys, shape (..., tokens, dims).
            dims: Numbers of a head that are rotated.
            offset: The first token's position; where rows differ, an array of one for each.
            traditional: Whether a pair is two neighbours instead of the same places of both halves.
            how: `base`, `scale` and `freqs`.
        """
        shape = a.shape
        rows = 0 if isinstance(offset, int) else _rows(offset, shape)
        if dims != shape[-1] or rows is None:
            return rope(a, dims, offset=offset, traditional=traditional, **how)
        pair = (dims // 2, 2) if traditional else (2, dims // 2)
        start, freqs = id(offset) if rows else offset, how.get("freqs")
        kind = (a.dtype, rows, start, traditional, how["base"], how["scale"], id(freqs))
        factors = self._wide.get((shape, kind))
        if factors is None:
            if (shape[-2:], kind) not in self._made:
                self._kept += [offset, freqs]
                flat = (rows, 1, *shape[-2:]) if rows else (1, *shape[-2:])
                self._made[shape[-2:], kind] = _factors(flat, pair, a.dtype, offset, traditional, how)
            wide = (*shape[:-1], *pair)
            cos, sin = (mx.broadcast_to(each, wide) for each in self._made[shape[-2:], kind])
            factors = self._wide[shape, kind] = cos, sin
        cos, sin = factors
        own = mx.unflatten(a, -1, pair)
        partners = own[..., ::-1] if traditional else own[..., ::-1, :]
        return mx.flatten(own * cos + partners * sin, -2)


def _rows(offset: mx.array, shape: tuple[int, ...]) -> int | None:
    """The rows of heads, tokens and numbers to which positions belong; None where they don't belong to rows."""
    return shape[0] if len(shape) == 4 and offset.shape == shape[:1] else None


def _factors(
    shape: tuple[int, ...],
    pair: tuple[int, int],
    dtype: mx.Dtype,
    offset: Any,
    traditional: bool,
    how: dict[str, Any],
) -> Factors:
    """The factors of consecutive tokens, each of the shape with its last axis as pairs: (1, 0) becomes (cos, sin)."""
    axis = -1 if traditional else -2
    first = mx.array([1, 0], dtype).reshape((1, 2) if traditional else (2, 1))
    flat = mx.flatten(mx.broadcast_to(first, (*shape[:-1], *pair)), -2)
    turned = rope(flat, shape[-1], offset=offset, traditional=traditional, **how)
    cos, sin = mx.split(mx.unflatten(turned, -1, pair), 2, axis)
    return mx.concatenate([cos, cos], axis), mx.concatenate([-sin, sin], axis)
