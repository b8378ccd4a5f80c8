"""Rotary position embeddings on a CPU: the layers of a forward share the cosines and sines of its positions.

MLX has no CPU kernel for `mx.fast.rope`: each call becomes 29 operations, two thirds of which make the cosines and
sines of its positions, the same ones for the queries and the keys of every layer. Of the 1,113 operations in a step of
the bundled model rotation took 464, and now takes 96: the steps of a run take their cosines and sines from those of
`BLOCK` positions. Python's thread hands each operation to the device's: where cores exchange memory slowly, a step
takes 0.7 of its former time.

The numbers stay MLX's, bit for bit: its own function turns the pair (1, 0) into (cos, sin), and x cos - y sin is
computed as x cos + y (-sin), which rounds alike.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from threading import get_ident
from typing import Any

import mlx.core as mx

rope = mx.fast.rope
"""MLX's own: within a forward, the attribute is another function."""
Factors = tuple[mx.array, mx.array]
"""The cosines, by which each number is multiplied, and the sines for its partner, with a minus for the first of a pair:
shape (..., tokens, *pair)."""
BLOCK = 64
"""Positions whose factors are made together: 0.3 ms, in 64 steps."""
MOST_BLOCKS = 32
"""Blocks that are kept: queries and keys have one each, and so has each base. One of 16 heads of 128 has 64 KiB."""


class RotaryBlocks:
    """The factors of single positions, for the steps of one model, made for `BLOCK` positions at once.

    The second forward in a block makes it, so that a visit of one token doesn't.
    """

    def __init__(self) -> None:
        self._blocks: dict[tuple[Any, ...], list[Factors] | None] = {}
        """By what they depend on; None where one forward was in it."""

    def find(
        self,
        shape: tuple[int, ...],
        pair: tuple[int, int],
        position: int,
        traditional: bool,
        how: dict[str, Any],
    ) -> Factors | None:
        """The factors of a position in float32, which counts positions exactly; None if they have no block yet.

        Args:
            shape: Of the queries or keys of one token, (..., 1, dims).
            pair: The axes of pairs in place of `dims`.
            position: Of the token.
            traditional: As in `rope`.
            how: As in `rope`.
        """
        begin, place = position // BLOCK * BLOCK, position % BLOCK
        key = (shape, traditional, how["base"], how["scale"], how.get("freqs"), begin)
        if key not in self._blocks:
            if len(self._blocks) == MOST_BLOCKS:
                del self._blocks[next(iter(self._blocks))]
            self._blocks[key] = None
            return None
        if (block := self._blocks[key]) is None:
            made = _factors((1, BLOCK, shape[-1]), pair, mx.float32, begin, traditional, how)
            wide = (mx.broadcast_to(each, (*shape[:-2], BLOCK, *pair)) for each in made)
            block = self._blocks[key] = list(zip(*(mx.split(each, BLOCK, -3) for each in wide), strict=True))
        return block[place]


def shared_rotary_factors(blocks: RotaryBlocks | None = None) -> AbstractContextManager[None]:
    """A block for one forward, in which its layers share cosines and sines.

    It changes nothing on a GPU, which has a kernel, nor while something else stands in the place of `mx.fast.rope`.

    Args:
        blocks: Those of the model's steps; None where forwards don't follow each other token by token.
    """
    if mx.fast.rope is not rope or mx.default_device() != mx.Device(mx.cpu):
        return nullcontext()
    return _SharedFactors(blocks)


class _SharedFactors:
    """The cosines and sines of one forward, by what they depend on; arrays are told apart by their identity."""

    def __init__(self, blocks: RotaryBlocks | None) -> None:
        self._blocks = blocks
        self._thread = get_ident()
        self._made: dict[tuple[Any, ...], Factors] = {}
        self._wide: dict[tuple[Any, ...], Factors] = {}
        """The same, broadcast once for a shape instead of in every product."""

    def __enter__(self) -> None:
        mx.fast.rope = self.rope

    def __exit__(self, *raised: object) -> None:
        mx.fast.rope = rope

    def rope(self, a: mx.array, dims: int, *, offset: Any, traditional: bool, **how: Any) -> mx.array:
        """As MLX's, which does it itself in other threads, and in forms that models seldom have.

        Args:
            a: Queries or keys, shape (..., tokens, dims).
            dims: Numbers of a head that are rotated; where they aren't all, MLX does it.
            offset: The first token's position, or an array with that of each row of an `a` of four axes.
            traditional: Whether a pair is two neighbours; else it is the same place in both halves.
            how: `base`, `scale` and `freqs`.
        """
        shape = a.shape
        front = _front(offset, shape)
        if front is None or dims != shape[-1] or get_ident() != self._thread:
            return rope(a, dims, offset=offset, traditional=traditional, **how)
        pair = (dims // 2, 2) if traditional else (2, dims // 2)
        kind = (shape[-2:], a.dtype, offset, traditional, how["base"], how["scale"], how.get("freqs"))
        factors = self._wide.get((shape, kind))
        if factors is None and self._blocks and (a.dtype, shape[-2], type(offset)) == (mx.float32, 1, int):
            factors = self._blocks.find(shape, pair, offset, traditional, how)
        if factors is None:
            if kind not in self._made:
                heads = (*front, *shape[-2:])
                self._made[kind] = _factors(heads, pair, a.dtype, offset, traditional, how)
            cos, sin = (mx.broadcast_to(each, (*shape[:-1], *pair)) for each in self._made[kind])
            factors = cos, sin
        cos, sin = self._wide[shape, kind] = factors
        own = mx.unflatten(a, -1, pair)
        partners = own[..., ::-1] if traditional else own[..., ::-1, :]
        return mx.flatten(own * cos + partners * sin, -2)


def _front(offset: Any, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The axes of factors before those of tokens and numbers; None for offsets that are neither one nor one a row."""
    if isinstance(offset, int):
        return (1,)
    return (shape[0], 1) if len(shape) == 4 and getattr(offset, "shape", ()) == shape[:1] else None


def _factors(
    heads: tuple[int, ...],
    pair: tuple[int, int],
    dtype: mx.Dtype,
    offset: Any,
    traditional: bool,
    how: dict[str, Any],
) -> Factors:
    """The factors of heads of this shape, (..., tokens, dims)."""
    axis = -1 if traditional else -2
    first = mx.array([1, 0], dtype).reshape((1, 2) if traditional else (2, 1))
    flat = mx.flatten(mx.broadcast_to(first, (*heads[:-1], *pair)), -2)
    turned = rope(flat, heads[-1], offset=offset, traditional=traditional, **how)
    cos, sin = mx.split(mx.unflatten(turned, -1, pair), 2, axis)
    return mx.concatenate([cos, cos], axis), mx.concatenate([-sin, sin], axis)
