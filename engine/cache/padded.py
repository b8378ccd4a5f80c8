"""mlx_lm's caches for several rows of different lengths, padded on the left; masks hide the padding.

They are empty at first, with the padding of each prompt. `extend` adds the rows of other caches, `filter` keeps some
rows, and after `finalize` every new column is a token. The tokens in a row are determined from its length, since the
caches' own counts are arrays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Any

import mlx.core as mx
from mlx_lm.models import cache as caches

from engine.cache.kinds import arrays, kind_of
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
    """Make empty caches of several rows.

    Args:
        single: Empty caches of one row, with an empty `refusal` for each.
        padding: Number of padding columns on the left of each row.
    """
    made = [type(cache).merge([cache] * len(padding)) for cache in single]
    for part in _parts(made):
        if type(part) is caches.ArraysCache:
            part.left_padding = mx.array(list(padding))
        else:
            part.prepare(left_padding=list(padding))
    return made


def state(rows: Sequence[Any]) -> list[mx.array]:
    """All arrays, to evaluate after a chunk of prefill."""
    return [array for cache in rows for array in arrays(cache.state)]


def pending(rows: Sequence[Any]) -> list[mx.array]:
    """The arrays that the logits after a forward pass don't depend on: all except keys and values."""
    found: list[mx.array] = []
    for part in _parts(rows):
        is_state = type(part) is caches.ArraysCache
        found += arrays(part.state if is_state else (part.offset, part.left_padding))
    return found


def share_offsets(rows: Sequence[Any]) -> None:
    """Give all layers one shared array of (equal) offsets, so that `shared_rotary_factors` computes their factors once.

    mlx_lm's caches replace that array and never modify it.
    """
    parts = counted(rows)
    for part in parts:
        part.offset = parts[0].offset


def counted(rows: Sequence[Any]) -> list[Any]:
    """The caches that count the tokens of their rows in an array `offset`."""
    return [part for part in _parts(rows) if type(part) is not caches.ArraysCache]


def read(rows: Sequence[Any], lengths: Sequence[int]) -> list[LaneKV]:
    """Read the KV of each row.

    Args:
        rows: The caches, with one row for each length.
        lengths: Number of tokens of each row that ran through the model.
    """
    fixed, count = 0, len(lengths)
    bytes_by_width: Counter[int] = Counter()  # number of columns: bytes of a column of one row
    for part in _parts(rows):
        if type(part) is caches.ArraysCache:
            fixed += part.nbytes // count
        else:
            column = sum(int(array.nbytes) // int(array.shape[2]) for array in (part.keys, part.values))
            bytes_by_width[columns(part)] += column // count
    widest, wide = max(bytes_by_width, default=0), bytes_by_width.items()
    lanes = []
    for length in lengths:
        used = fixed + sum(each * min(length, width) for width, each in wide)
        lanes.append(LaneKV(length, widest, used, sum(each * max(0, width - length) for width, each in wide)))
    return lanes


def columns(part: Any) -> int:
    """Number of written columns of a cache, including padding."""
    if type(part) is caches.BatchKVCache:
        return int(part._idx)
    if type(part) is caches.BatchRotatingKVCache and part.keys is not None:
        return int(min(part._offset, part.keys.shape[2]))
    return 0


def _parts(rows: Sequence[Any]) -> list[Any]:
    """The caches, with each composite cache replaced by its inner caches."""
    nested = (_parts(cache.caches) if hasattr(cache, "caches") else [cache] for cache in rows)
    return [*chain.from_iterable(nested)]
