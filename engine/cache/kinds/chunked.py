"""Chunked KV caches, of llama4: keys and values that grow at their end and are dropped at their beginning."""

from __future__ import annotations

from typing import Any

from mlx_lm.models import cache as caches

from engine.cache.kinds.kind import Kind


class Chunked(Kind):
    """It can be trimmed as far as its beginning was not dropped; it has no snapshots."""

    name = "chunked"
    cache_class = caches.ChunkedKVCache
    columns = grows = True
    lazy = False

    def held(self, cache: Any) -> int:
        return int(cache.offset - cache.start_position)

    def key_positions(self, cache: Any, count: int) -> list[int] | None:
        """See `Kind`; without the dropped beginning."""
        first = int(cache.start_position)
        return list(range(first, first + count)) if first + count == cache.offset else None

    def limit(self, cache: Any) -> int | None:
        """The chunk of attention."""
        return int(cache.chunk_size)

    def record_undo(self, cache: Any) -> None:
        """None: `trim` may stop at the dropped beginning by the time of the undo, and doesn't report it."""

    def trim_refusal(self, cache: Any, offset: int) -> str:
        """See `Kind`; the next token attends to its own chunk from that chunk's first token on, which must be there."""
        begin = min(cache.chunk_size * (offset // cache.chunk_size), offset - 1)
        dropped = "a chunked cache has dropped its beginning" if begin < cache.start_position else ""
        return super().trim_refusal(cache, offset) or dropped
