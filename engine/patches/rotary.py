"""Rotary position embeddings on a CPU: the layers of a forward pass share the cosines and sines of its positions.

Reason: MLX has no CPU kernel for `mx.fast.rope`. Each call becomes 29 operations, two thirds of which compute the
cosines and sines of its positions, the same for the queries and keys of every layer. Gain: the bundled model generates
1.35 times as fast as mlx_lm's loop, and 0.98 times without. Upstream: no issue is known; a CPU kernel, or factors that
a model computes once per forward pass, would replace this file.

Of the 1,113 operations in a step of the bundled model, rotation takes 96 instead of 464: cosines and sines are computed
for `BLOCK` positions at once, and shared by the steps of a run. The results are MLX's, bit for bit: its own function
turns the pair (1, 0) into (cos, sin), and x cos - y sin is computed as x cos + y (-sin), which rounds the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any, NamedTuple

import mlx.core as mx

from engine.patches import allowed

rope = mx.fast.rope
"""MLX's function, which the patch replaces during a forward pass."""
Factors = tuple[mx.array, mx.array]
"""The cosines, by which each number is multiplied, and the sines for its partner, with a minus for the first of a pair:
shape (..., tokens, *pair)."""
BLOCK = 64
"""Number of positions whose factors are computed together: 0.5 to 0.7 ms, once in 64 steps."""
MOST_BLOCKS = 16
"""Largest number of blocks that are kept, 64 KiB each with a head size of 128; layers with another base have their own
blocks."""
MOST_FREQUENCIES = 512
"""Largest number of frequency arrays that are compared, enough for the layers of a model; a model that makes new arrays
in every forward pass would otherwise have all of them compared."""


@contextmanager
def shared_rotary_factors(blocks: RotaryBlocks | None = None) -> Iterator[None]:
    """Share cosines and sines among the layers of the forward pass in this block.

    It changes nothing on a GPU, which has a kernel, nor while `mx.fast.rope` is replaced by something else.

    Args:
        blocks: Factors of the model's steps; None if forward passes don't follow each other token by token.
    """
    if mx.fast.rope is not rope or mx.default_device() != mx.Device(mx.cpu) or not allowed("rotary"):
        yield
        return
    mx.fast.rope = _SharedFactors(blocks).rope
    try:
        yield
    finally:
        mx.fast.rope = rope


class _Rotation(NamedTuple):
    """The settings of a model's rotation: with a position they give its cosines and sines.

    Frequencies are compared by identity: mlx_lm makes them once, and doesn't change them in place.
    """

    dims: int
    traditional: bool
    base: float | None
    scale: float
    freqs: mx.array | None

    @property
    def pair(self) -> tuple[int, int]:
        """Sizes of the two axes that replace that of `dims` numbers."""
        return (self.dims // 2, 2) if self.traditional else (2, self.dims // 2)

    def factors(self, front: tuple[int, ...], tokens: int, dtype: mx.Dtype, offset: Any) -> Factors:
        """The cosines and sines of some positions, computed by MLX's own function.

        Args:
            front: Sizes of the axes before the tokens' axis.
            tokens: Number of positions.
            dtype: Dtype of the queries and keys.
            offset: The first position, or an array with the first position of each row.
        """
        axis = -1 if self.traditional else -2
        first = mx.array([1, 0], dtype).reshape((1, 2) if self.traditional else (2, 1))
        flat = mx.flatten(mx.broadcast_to(first, (*front, tokens, *self.pair)), -2)
        turned = rope(
            flat, self.dims, traditional=self.traditional, base=self.base, scale=self.scale, offset=offset,
            freqs=self.freqs,
        )  # fmt: skip
        cos, sin = mx.split(mx.unflatten(turned, -1, self.pair), 2, axis)
        return mx.concatenate([cos, cos], axis), mx.concatenate([-sin, sin], axis)


class RotaryBlocks:
    """The factors of single positions, for the steps of one model, computed for `BLOCK` positions at once.

    A block is computed at the second forward pass in it, so that a single token doesn't cost a whole block.
    """

    def __init__(self) -> None:
        self._blocks: dict[tuple[_Rotation, int], tuple[Factors, dict[Any, list[Factors]]] | None] = {}
        """The factors of a block, and for each shape of queries or keys the factors of each position; None after the
        first forward pass in the block. Keys are the rotation and the first position."""
        self._frequencies: dict[int, tuple[mx.array, mx.array]] = {}
        """Arrays of frequencies by identity, each with the first of the arrays that are equal to it."""

    def first_equal(self, freqs: mx.array | None) -> mx.array | None:
        """The array that stands for all with these frequencies: in mlx_lm's Llama 3, every layer has its own array."""
        if freqs is None:
            return None
        if (known := self._frequencies.get(id(freqs))) is not None:
            return known[1]
        if len(self._frequencies) == MOST_FREQUENCIES:
            return freqs
        firsts = [first for own, first in self._frequencies.values() if own is first]
        same = (
            first for first in firsts if first.dtype == freqs.dtype and bool(mx.array_equal(first, freqs))
        )
        self._frequencies[id(freqs)] = known = freqs, next(same, freqs)
        return known[1]

    def find(self, rotation: _Rotation, shape: tuple[int, ...], position: int) -> Factors | None:
        """The factors of a position in float32, which counts positions exactly; None if there is no block yet.

        Args:
            rotation: The settings of the rotation.
            shape: Shape (..., 1, dims) of the queries or keys of one token.
            position: Position of the token.
        """
        place, pair = position % BLOCK, rotation.pair
        key = rotation, position - place
        if key not in self._blocks:
            if len(self._blocks) == MOST_BLOCKS:
                del self._blocks[next(iter(self._blocks))]
            self._blocks[key] = None
            return None
        if (block := self._blocks[key]) is None:
            block = self._blocks[key] = rotation.factors((1,), BLOCK, mx.float32, position - place), {}
        factors, each = block
        if shape not in each:
            wide = (mx.broadcast_to(part, (*shape[:-2], BLOCK, *pair)) for part in factors)
            each[shape] = list(zip(*(mx.split(part, BLOCK, -3) for part in wide), strict=True))
        return each[shape][place]


class _SharedFactors:
    """The cosines and sines of one forward pass."""

    def __init__(self, blocks: RotaryBlocks | None) -> None:
        self._blocks = blocks
        self._thread = get_ident()
        self._made: dict[tuple[Any, ...], Factors] = {}
        """Factors by rotation, number of tokens, dtype and offset; arrays are compared by identity."""
        self._wide: dict[tuple[Any, ...], Factors] = {}
        """The same, broadcast to a shape once instead of in every product."""

    def rope(self, a: mx.array, dims: int, *, offset: Any, traditional: bool, **how: Any) -> mx.array:
        """Rotate as MLX's function does; in other threads, and for forms that models seldom have, that one is called.

        Args:
            a: Queries or keys, shape (..., tokens, dims).
            dims: Numbers of a head that are rotated; if they aren't all, MLX's function does it.
            offset: The first token's position, or an array with that of each row if `a` has four axes.
            traditional: True if a pair is two neighbours, False if it is the same place in both halves.
            how: `base`, `scale` and `freqs`.
        """
        each_row = a.ndim == 4 and getattr(offset, "shape", ()) == a.shape[:1]
        front = (1,) if isinstance(offset, int) else (a.shape[0], 1) if each_row else None
        if front is None or dims != a.shape[-1] or get_ident() != self._thread:
            return rope(a, dims, offset=offset, traditional=traditional, **how)
        freqs = how.get("freqs")
        freqs = freqs if self._blocks is None else self._blocks.first_equal(freqs)
        rotation = _Rotation(dims, traditional, how["base"], how["scale"], freqs)
        cos, sin = self._factors(rotation, a, front, offset)
        own = mx.unflatten(a, -1, rotation.pair)
        partners = own[..., ::-1] if traditional else own[..., ::-1, :]
        return mx.flatten(own * cos + partners * sin, -2)

    def _factors(self, rotation: _Rotation, a: mx.array, front: tuple[int, ...], offset: Any) -> Factors:
        shape = a.shape
        kind = rotation, shape[-2], a.dtype, offset
        if (found := self._wide.get((shape, kind))) is not None:
            return found
        one = (shape[-2], a.dtype, type(offset)) == (1, mx.float32, int)
        if one and self._blocks is not None and kind not in self._made:
            found = self._blocks.find(rotation, shape, offset)
        if found is None:
            if kind not in self._made:
                self._made[kind] = rotation.factors(front, shape[-2], a.dtype, offset)
            cos, sin = (mx.broadcast_to(each, (*shape[:-1], *rotation.pair)) for each in self._made[kind])
            found = cos, sin
        self._wide[shape, kind] = found
        return found
