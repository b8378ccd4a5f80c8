"""Parts of a KV cache, kept and put back, and single tokens taken off again: one strategy for each kind.

- plain and quantized caches grow at their end: a part is a copy of some tokens' columns, and trimming takes tokens off;
- a rotating cache overwrites its oldest column, so a part is the whole ring, and taking a token off puts the
  overwritten column back;
- a recurrent state is replaced at each token and never written in place, so both are references to its arrays.

Copies are forced (`mx.array`): a slice that shares the live buffer would make MLX copy all of it at the next write.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx_lm.models import cache as caches

Array = mx.array


@dataclass(frozen=True, slots=True)
class Columns:
    """Some tokens of a plain or quantized cache."""

    arrays: tuple[Array, ...]
    """Each of shape (1, heads, tokens, ...): keys and values, or their packed values, scales and biases."""
    start: int


@dataclass(frozen=True, slots=True)
class Ring:
    """A whole rotating cache."""

    keys: Array
    values: Array
    offset: int
    index: int


@dataclass(frozen=True, slots=True)
class State:
    """A recurrent state, by reference."""

    arrays: tuple[Array | None, ...]


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a cache that is made of caches."""

    parts: tuple[Part, ...]


Part = Columns | Ring | State | Parts


def nbytes(part: Part | Undo) -> int:
    """Bytes that a part keeps alive."""
    match part:
        case Columns(arrays, _):
            return sum(array.nbytes for array in arrays)
        case Ring(keys, values, _, _):
            return int(keys.nbytes + values.nbytes)
        case State(arrays):
            return sum(array.nbytes for array in arrays if array is not None)
        case Parts(parts):
            return sum(map(nbytes, parts))
        case Overwritten(keys, values, _, _, _):
            return int(keys.nbytes + values.nbytes)
        case _:
            return 0


def arrays_of(part: Part | Undo) -> list[Array]:
    """The arrays of a part, to evaluate before the live buffers are written again."""
    match part:
        case Columns(arrays, _):
            return list(arrays)
        case Ring(keys, values, _, _) | Overwritten(keys, values, _, _, _):
            return [keys, values]
        case Parts(parts):
            return [array for each in parts for array in arrays_of(each)]
        case _:
            return []


def flat(undo: Undo) -> list[Array]:
    """The arrays of an undo record, however nested."""
    if isinstance(undo, tuple):
        return [array for each in undo for array in flat(each)]
    return arrays_of(undo)


# ---- parts ------------------------------------------------------------------------------------


def keepable(cache: Any) -> bool:
    """Whether parts of a cache can be kept: its kind has a strategy here."""
    if isinstance(cache, caches.CacheList):
        return all(map(keepable, cache.caches))
    return type(cache) in (
        caches.KVCache, caches.QuantizedKVCache, caches.RotatingKVCache, caches.ArraysCache,
    )  # fmt: skip


def _columns(cache: Any) -> list[Array]:
    """A plain or quantized cache's buffers, keys first."""
    if isinstance(cache, caches.QuantizedKVCache):
        return [*cache.keys, *cache.values]
    return [cache.keys, cache.values]


def take(cache: Any, start: int, end: int) -> Part:
    """Keep the tokens from `start` to `end` of a cache that stands at `end`."""
    if isinstance(cache, caches.CacheList):
        return Parts(tuple(take(each, start, end) for each in cache.caches))
    if isinstance(cache, caches.ArraysCache):
        return State(tuple(cache.cache))
    if isinstance(cache, caches.RotatingKVCache):
        return Ring(mx.array(cache.keys), mx.array(cache.values), cache.offset, cache._idx)
    return Columns(tuple(mx.array(buffer[..., start:end, :]) for buffer in _columns(cache)), start)


def put(cache: Any, part: Part, at: int, end: int) -> int:
    """Put a part back into a cache that stands at `at` tokens of the same path.

    Args:
        cache: To be written.
        part: From `take`; it stays good.
        at: Tokens that stay of what the cache holds: no fewer than the part's start.
        end: Tokens that it shall hold. Rings and states come back whole, as they stood when they were kept.

    Returns:
        Bytes that were put back.
    """
    match part:
        case Parts(parts):
            return sum(put(each, inner, at, end) for each, inner in zip(cache.caches, parts, strict=True))
        case State(arrays):
            cache.cache = list(arrays)
            return nbytes(part)
        case Ring(keys, values, offset, index):
            cache.keys, cache.values = mx.array(keys), mx.array(values)
            cache.offset, cache._idx = offset, index
            return nbytes(part)
        case Columns(arrays, start):
            if cache.offset < at:  # it would leave a gap, and wrong KV is silent
                raise ValueError(f"a cache of {cache.offset} tokens can't go on from {at}")
            cache.trim(cache.offset - at)
            columns = [array[..., at - start : end - start, :] for array in arrays]
            _write(cache, columns, at, end)
            return sum(column.nbytes for column in columns)


def _write(cache: Any, columns: Sequence[Array], at: int, end: int) -> None:
    """Write columns at the end of a plain or quantized cache, growing it as it grows itself."""
    if isinstance(cache, caches.KVCache):
        cache.update_and_fetch(*columns)
        return
    buffers = _columns(cache)
    missing = end - buffers[0].shape[2]
    if missing > 0:
        block = -(-missing // cache.step) * cache.step
        buffers = [_grown(buffer, block) for buffer in buffers]
        half = len(buffers) // 2
        cache.keys, cache.values = tuple(buffers[:half]), tuple(buffers[half:])
        buffers = _columns(cache)
    for buffer, column in zip(buffers, columns, strict=True):
        buffer[..., at:end, :] = column
    cache.offset = end


def _grown(buffer: Array, block: int) -> Array:
    shape = (*buffer.shape[:2], block, *buffer.shape[3:])
    return mx.concatenate([buffer, mx.zeros(shape, buffer.dtype)], axis=2)


# ---- one token taken off again ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Trim:
    """The token is taken off by moving the end."""


@dataclass(frozen=True, slots=True)
class Overwritten:
    """The column of a ring that the token overwrites, or the whole ring where it is rebuilt."""

    keys: Array
    values: Array
    place: int | None
    """None for a whole ring."""
    offset: int
    index: int


Undo = Trim | Overwritten | State | tuple[Any, ...]


def note(cache: Any) -> Undo:
    """What is needed to take the next single token off a cache again; ask before its forward."""
    if isinstance(cache, caches.CacheList):
        return tuple(note(each) for each in cache.caches)
    if isinstance(cache, caches.ArraysCache):
        return State(tuple(cache.cache))
    if isinstance(cache, caches.RotatingKVCache) and cache.keys is not None:
        return _note_ring(cache)
    return Trim()


def _note_ring(cache: Any) -> Undo:
    length = cache.keys.shape[2]
    if length < cache.max_size or cache.offset < cache.max_size:
        return Trim()
    if (
        length > cache.max_size
    ):  # a chunk left it longer: the next token rebuilds it, and the old arrays stay as they are
        return Overwritten(cache.keys, cache.values, None, cache.offset, cache._idx)
    place = cache.keep if cache._idx == cache.max_size else cache._idx
    keys, values = (mx.array(buffer[..., place : place + 1, :]) for buffer in (cache.keys, cache.values))
    return Overwritten(keys, values, place, cache.offset, cache._idx)


def take_off(cache: Any, undo: Undo) -> None:
    """Take the last single token off a cache."""
    match undo:
        case tuple():
            for each, inner in zip(cache.caches, undo, strict=True):
                take_off(each, inner)
        case State(arrays):
            cache.cache = list(arrays)
        case Overwritten(keys, values, None, offset, index):
            cache.keys, cache.values = keys, values
            cache.offset, cache._idx = offset, index
        case Overwritten(keys, values, int(place), offset, index):
            cache.keys[..., place : place + 1, :] = keys
            cache.values[..., place : place + 1, :] = values
            cache.offset, cache._idx = offset, index
        case Trim():
            cache.trim(1)
