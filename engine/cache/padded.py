"""mlx_lm's caches for several rows of different lengths, padded on the left; masks hide the padding.

They begin empty with the padding of each prompt; `extend` appends the rows of other caches, `filter` selects rows. A
row's cached tokens follow from its length, since mlx_lm's own counts are arrays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import mlx.core as mx
from mlx_lm.models import cache as caches

from engine.cache.kind import arrays
from engine.cache.kinds import kind_of
from engine.protocol import LaneKV


def refusal(cache: Any) -> str:
    """Reason why rows of different lengths can't share a cache of this kind; empty if they can."""
    if type(cache) is caches.CacheList:
        return next(filter(None, map(refusal, cache.caches)), "")
    if type(cache) is caches.RotatingKVCache and cache.keep:
        return "a rotating cache that keeps its first tokens has no form of several rows in mlx_lm"
    if type(cache) in (caches.KVCache, caches.RotatingKVCache, caches.ArraysCache):
        return ""
    return f"a cache of kind {kind_of(cache).name} ({type(cache).__name__}) has no form of several rows in mlx_lm"


def empty(single: Sequence[Any], padding: Sequence[int]) -> list[Any]:
    """Empty caches of several rows.

    Args:
        single: Empty caches of one row, none of them refused by `refusal`.
        padding: Number of padding columns on the left of each row.
    """
    made = [type(cache).merge([cache] * len(padding)) for cache in single]
    for cache in made:
        _pad(cache, padding)
    return made


def _pad(cache: Any, padding: Sequence[int]) -> None:
    if type(cache) is caches.CacheList:
        for inner in cache.caches:
            _pad(inner, padding)
    elif type(cache) is caches.ArraysCache:
        cache.left_padding = mx.array(list(padding))
    else:
        cache.prepare(left_padding=list(padding))


def settle(rows: Sequence[Any]) -> None:
    """End the prefill of the prompts: from now on every column is a token of its row."""
    for cache in rows:
        cache.finalize()


def join(rows: Sequence[Any], others: Sequence[Any]) -> None:
    """Append the rows of other caches."""
    for cache, other in zip(rows, others, strict=True):
        cache.extend(other)
    mx.eval(state(rows))


def keep(rows: Sequence[Any], places: Sequence[int]) -> None:
    """Select some of the rows, in this order."""
    for cache in rows:
        cache.filter(mx.array(list(places)))
    mx.eval(state(rows))


def state(rows: Sequence[Any]) -> list[mx.array]:
    """All arrays, to evaluate after a chunk of prefill."""
    return [array for cache in rows for array in arrays(cache.state)]


def share_offsets(rows: Sequence[Any]) -> None:
    """Give all layers one shared array of (equal) offsets, so that `shared_rotary_factors` computes their factors once.

    mlx_lm's caches replace that array and never modify it.
    """
    parts = counted(rows)
    for part in parts:
        part.offset = parts[0].offset


def counted(rows: Sequence[Any]) -> list[Any]:
    """The caches with the token counts of their rows in the array `offset`."""
    return [part for cache in rows for part in _parts(cache) if type(part) is not caches.ArraysCache]


def pending(rows: Sequence[Any]) -> list[mx.array]:
    """The arrays that the logits after a forward pass don't depend on: all but keys and values."""
    parts = (part for cache in rows for part in _parts(cache))
    counts = (
        part.state if type(part) is caches.ArraysCache else (part.offset, part.left_padding) for part in parts
    )
    return list(arrays(tuple(counts)))


def read(rows: Sequence[Any], lengths: Sequence[int]) -> list[LaneKV]:
    """Read the KV sizes of each row.

    Args:
        rows: The caches, with one row for each length.
        lengths: Number of tokens of each row that went through the model.
    """
    fixed, count = 0, len(lengths)
    bytes_by_width: Counter[int] = Counter()  # width -> bytes of a row's column
    for part in (part for cache in rows for part in _parts(cache)):
        if type(part) is caches.ArraysCache:
            fixed += part.nbytes // count
        else:
            bytes_by_width[_columns(part)] += column_bytes(part) // count
    columns = max(bytes_by_width, default=0)
    return [_row(fixed, bytes_by_width, length, columns) for length in lengths]


def _row(fixed: int, bytes_by_width: Mapping[int, int], length: int, columns: int) -> LaneKV:
    used = fixed + sum(each * min(length, wide) for wide, each in bytes_by_width.items())
    padding = sum(each * max(0, wide - length) for wide, each in bytes_by_width.items())
    return LaneKV(length, columns, used, padding)


def _parts(cache: Any) -> list[Any]:
    return [part for inner in cache.caches for part in _parts(inner)] if hasattr(cache, "caches") else [cache]


def _columns(part: Any) -> int:
    """Number of columns written, including padding."""
    if type(part) is caches.BatchKVCache:
        return int(part._idx)
    if type(part) is caches.BatchRotatingKVCache and part.keys is not None:
        return int(min(part._offset, part.keys.shape[2]))
    return 0


def column_bytes(part: Any) -> int:
    """Bytes of one column of all rows."""
    return sum(int(array.nbytes) // int(array.shape[2]) for array in (part.keys, part.values))
