"""Watches how a forward uses positions, and hands its model other ones."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx_lm.models.base as base
import numpy as np

from engine.errors import StepError
from engine.model.layers import decoder_layers
from engine.model.patches import calls, patched
from engine.protocol import Check, PositionUse, PositionWay, Rotation

rope = mx.fast.rope
"""MLX's own: while a watch is set, the attribute is another function."""
fused_attention = mx.fast.scaled_dot_product_attention
softmax = mx.softmax


class ShiftedCache:
    """A cache that tells the model another offset; what it holds, writes and masks by is its own.

    Args:
        cache: One of mlx_lm's.
        by: What is added to its offset.
        watch: Is told that the offset was asked for.
    """

    __slots__ = ("_by", "_cache", "_watch")

    def __init__(self, cache: Any, by: int, watch: PositionWatch) -> None:
        for name, value in (("_cache", cache), ("_by", by), ("_watch", watch)):
            object.__setattr__(self, name, value)

    @property
    def offset(self) -> Any:
        """What the model takes for the token's position."""
        self._watch.asked = True
        return self._cache.offset + self._by

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._cache, name, value)


def shifted(cache: Any, by: int, watch: PositionWatch) -> Any:
    """A cache with another offset; a state has none, and stays as it is."""
    if hasattr(cache, "caches"):
        wrapped = copy.copy(cache)
        wrapped.caches = tuple(shifted(inner, by, watch) for inner in cache.caches)
        return wrapped
    return ShiftedCache(cache, by, watch) if hasattr(cache, "offset") else cache


class PositionWatch:
    """What some forwards of a model do with positions.

    Args:
        model: As mlx_lm loads it.
        position: That the first token is told.
        unmasked: Whether attention goes without its mask.
    """

    def __init__(self, model: Any, position: int = 0, unmasked: bool = False) -> None:
        self._model, self._position, self._unmasked = model, position, unmasked
        self.asked = False
        """Whether the model asked for an offset."""
        self.keys: dict[int, int] = {}
        """By layer, the most keys that its attention saw."""
        self.computed_itself: set[int] = set()
        """Layers with an attention of their own."""
        self._turned: dict[int, tuple[int, float | None, float, int]] = {}
        self._table = 0
        self._layers: list[int] = []
        """Those that run."""
        self._count = self._lookups = 0
        self._quiet = False

    @contextmanager
    def set(self, count: int) -> Iterator[None]:
        """Watch a forward in this block.

        Args:
            count: Its tokens.
        """
        layers = decoder_layers(self._model)
        index = {id(layer): number for number, layer in enumerate(layers)}
        tables = [
            module
            for _, module in self._model.named_modules()
            if isinstance(module, nn.Embedding | nn.QuantizedEmbedding)
        ]

        def layer(original: Any, module: Any, args: Any, kwargs: Any) -> Any:
            self._layers.append(index[id(module)])
            try:
                return original(module, *args, **kwargs)
            finally:
                self._layers.pop()

        self._count, self._lookups = count, 0
        with patched(
            (mx.fast, "rope", self._rope),
            (mx.fast, "scaled_dot_product_attention", self._fused),
            (base, "quantized_scaled_dot_product_attention", self._quantized_around()),
            (mx, "softmax", self._softmax),
            *calls(layers, layer),
            *calls(tables, self._look_up),
        ):
            yield
        self._position += count

    @property
    def use(self) -> PositionUse:
        """What was seen."""
        groups: dict[tuple[int, float | None, float, int], list[int]] = {}
        for layer, how in sorted(self._turned.items()):
            groups.setdefault(how, []).append(layer)
        rotations = tuple(Rotation(tuple(layers), *how) for how, layers in groups.items())
        way: PositionWay = (
            "rotary" if rotations else "learned" if self._table else "own" if self.asked else "none"
        )
        every = range(len(decoder_layers(self._model)))
        unturned = tuple(layer for layer in every if layer not in self._turned) if rotations else ()
        keys = max(self.keys.values(), default=0)
        return PositionUse(way, self._position - self._count, keys, rotations, unturned, self._table)

    def same_keys(self, other: PositionWatch) -> Check:
        """Whether the attentions of other forwards saw as many keys."""
        every = self.keys.keys() | other.keys.keys()
        apart = {layer: abs(self.keys.get(layer, 0) - other.keys.get(layer, 0)) for layer in every}
        layer = max(apart, key=apart.__getitem__, default=0)
        return Check("keys", float(apart.get(layer, 0)), 0.0, f"layer {layer}")

    # ---- what runs in the place of MLX's own -----------------------------------------------------

    def _rope(self, x: mx.array, dims: int, **how: Any) -> mx.array:
        if self._layers and self._layers[-1] not in self._turned:
            offset = int(np.array(how.get("offset", 0)).reshape(-1)[0])
            numbers = how.get("base"), how.get("scale", 1.0)
            self._turned[self._layers[-1]] = dims, numbers[0], numbers[1], offset
        return rope(x, dims, **how)

    def _fused(self, q: mx.array, k: mx.array, v: mx.array, *, mask: Any = None, **more: Any) -> mx.array:
        self._saw(k.shape[2])
        return fused_attention(q, k, v, mask=None if self._lifts else mask, **more)

    def _quantized_around(self) -> Any:
        original = base.quantized_scaled_dot_product_attention

        def quantized(queries: mx.array, keys: Any, values: Any, scale: float, mask: Any, **more: Any) -> Any:
            self._saw(keys[0].shape[2])
            self._quiet = True
            try:
                return original(queries, keys, values, scale, None if self._lifts else mask, **more)
            finally:
                self._quiet = False

        return quantized

    def _softmax(self, x: mx.array, *args: Any, **kwargs: Any) -> mx.array:
        if self._layers and not self._quiet and x.ndim >= 4:
            self.computed_itself.add(self._layers[-1])
            self._saw(x.shape[-1])
        return softmax(x, *args, **kwargs)

    @property
    def _lifts(self) -> bool:
        return self._unmasked and bool(self._layers)

    def _saw(self, keys: int) -> None:
        if self._layers:
            self.keys[self._layers[-1]] = max(keys, self.keys.get(self._layers[-1], 0))

    def _look_up(self, original: Any, module: Any, args: Any, kwargs: Any) -> Any:
        """A row of a table for each token: MLX doesn't check that there is one."""
        places = np.array(args[0] if args else next(iter(kwargs.values()))).reshape(-1)
        rows = int(module.weight.shape[0])
        self._lookups += 1
        own = self._lookups > 1 and list(places) == list(range(self._position, self._position + self._count))
        if own:
            self._table = rows
        if places.size and not 0 <= places.min() <= places.max() < rows:
            raise StepError(
                f"This model has learned {rows:,} positions, 0 to {rows - 1:,}, and was told {int(places.max())}"
                f"{f' and {int(places.min())}' if places.min() < 0 else ''}.",
                "There is no vector for it: try an offset within them.",
            )
        return original(module, *args, **kwargs)
