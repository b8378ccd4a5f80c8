"""Plain KV caches: keys and values of all tokens, growing at their end by blocks of 256 tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
from mlx_lm.models import cache as caches

from engine.cache.kinds.kind import Array, Kind, Snapshot
from engine.frozen import frozen
from engine.protocol import CacheKind


@frozen
class Columns(Snapshot):
    """Some tokens: copies of shape (1, heads, tokens, ...), keys first."""

    start: int = 0


class Plain(Kind):
    """A snapshot is a copy of some tokens' columns; trimming moves the end and frees no memory."""

    name: CacheKind = "plain"
    cache_class = caches.KVCache
    has_snapshots = columns = grows = partial_restore = quantizable = True
    lazy = False

    def trims_at(self, cache: Any, offset: int) -> bool:
        """Always."""
        return True

    def recover(self, cache: Any, offset: int) -> bool:
        """Trim what the failed forward added."""
        ahead = int(getattr(cache, "offset", 0)) - offset
        return not ahead or cache.trim(ahead) == ahead

    def snapshot(self, cache: Any, start: int, end: int) -> Columns:
        copies = tuple(mx.array(buffer[..., start:end, :]) for buffer in self.buffers(cache))
        return Columns(copies, start=start)

    def restore(self, cache: Any, saved: Columns, at: int, end: int) -> int:
        """See `Kind`; `end` may be any number of tokens that the snapshot reaches."""
        if cache.offset < at:  # it would leave a gap, and wrong KV is silent
            raise ValueError(f"a cache of {cache.offset} tokens can't go on from {at}")
        cache.trim(cache.offset - at)
        columns = [array[..., at - saved.start : end - saved.start, :] for array in saved.copies]
        self._append(cache, columns, at, end)
        return sum(column.nbytes for column in columns)

    def _append(self, cache: Any, columns: Sequence[Array], at: int, end: int) -> None:
        """Write columns at the end of a cache, which grows by mlx_lm's blocks."""
        cache.update_and_fetch(*columns)

    def reorder(self, cache: Any, rows: Array, since: int | None) -> list[Any]:
        """See `Kind`; in place from `since` on: what all rows have in common is never copied again."""
        if since is None:
            return super().reorder(cache, rows, since)
        return [buffer[..., since : cache.offset, :][rows] for buffer in self.buffers(cache)]

    def write_columns(self, cache: Any, columns: list[Any], since: int | None) -> None:
        if columns:
            for buffer, column in zip(self.buffers(cache), columns, strict=True):
                buffer[..., since : cache.offset, :] = column
