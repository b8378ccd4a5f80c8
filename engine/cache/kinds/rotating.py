"""Rotating KV caches: a ring of the last tokens, whose oldest column a new token overwrites."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
from mlx_lm.models import cache as caches

from engine.cache.kinds.kind import Kind, Snapshot
from engine.frozen import frozen


@frozen
class Ring(Snapshot):
    """Keys and values of the whole ring, or of the column that the next token overwrites."""

    offset: int = 0
    index: int = 0
    """Where mlx_lm writes next."""
    column: int | None = None
    """None for a whole ring."""


class Rotating(Kind):
    """A snapshot is the whole ring; undoing a token restores the overwritten column."""

    name = "rotating"
    cache_class = caches.RotatingKVCache
    has_snapshots = columns = True
    lazy = False

    def held(self, cache: Any) -> int:
        """See `Kind`: a chunk of prefill leaves the ring longer than its window until the next single token."""
        length = cache.keys.shape[2] if cache.keys is not None else 0
        return int(min(cache.offset, max(cache.max_size, length)))

    def key_positions(self, cache: Any, count: int) -> list[int] | None:
        """See `Kind`: the first tokens that it keeps, then the ring: the newest key is before the one written next."""
        offset, keep, index = int(cache.offset), int(cache.keep), int(cache._idx)
        if cache.keys is None or count != min(offset, cache.keys.shape[2]):
            return None
        if count == offset:
            return list(range(count))
        newest = [offset - index + slot for slot in range(keep, index)]
        oldest = [offset - (count - keep) + slot for slot in range(count - index)]
        return [*range(keep), *newest, *oldest]

    def limit(self, cache: Any) -> int | None:
        """The window."""
        return int(cache.max_size)

    def trims_at(self, cache: Any, offset: int) -> bool:
        """Until the window is full: from then on a token is overwritten at each step."""
        return bool(offset < cache.max_size)

    def snapshot(self, cache: Any, start: int, end: int) -> Ring:
        """See `Kind`; the whole ring, whatever the start."""
        copies = mx.array(cache.keys), mx.array(cache.values)
        return Ring(copies, offset=cache.offset, index=cache._idx)

    def restore(self, cache: Any, saved: Ring, at: int, end: int) -> int:
        cache.keys, cache.values = map(mx.array, saved.copies)
        cache.offset, cache._idx = saved.offset, saved.index
        return saved.nbytes

    def record_undo(self, cache: Any) -> Snapshot:
        length = 0 if cache.keys is None else cache.keys.shape[2]
        if length < cache.max_size or cache.offset < cache.max_size:
            return Snapshot()  # the window is not full yet: nothing is overwritten, and trimming undoes it
        if length > cache.max_size:
            # A chunk left it longer: the next token makes new arrays, and the old ones stay as they are.
            return Ring((cache.keys, cache.values), offset=cache.offset, index=cache._idx)
        column = cache.keep if cache._idx == cache.max_size else cache._idx
        keys, values = (mx.array(side[..., column : column + 1, :]) for side in (cache.keys, cache.values))
        return Ring((keys, values), offset=cache.offset, index=cache._idx, column=column)

    def undo(self, cache: Any, record: Snapshot) -> None:
        if not isinstance(record, Ring):
            super().undo(cache, record)
            return
        keys, values = record.copies
        if record.column is None:
            cache.keys, cache.values = keys, values
        else:
            cache.keys[..., record.column : record.column + 1, :] = keys
            cache.values[..., record.column : record.column + 1, :] = values
        cache.offset, cache._idx = record.offset, record.index
