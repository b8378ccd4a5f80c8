"""Recurrent states: arrays that every token replaces by new ones and never writes in place."""

from __future__ import annotations

from typing import Any

from mlx_lm.models import cache as caches

from engine.cache.kinds.kind import Array, Kind, Snapshot, arrays, pick_rows


class Recurrent(Kind):
    """Snapshots, and what undoes a token, are references to the arrays."""

    name = "recurrent"
    cache_class = caches.ArraysCache
    has_snapshots = True
    attended = False

    def buffers(self, cache: Any) -> list[Array]:
        return list(arrays(cache.cache))

    def held(self, cache: Any) -> int:
        """0: a state holds no tokens."""
        return 0

    def snapshot(self, cache: Any, start: int, end: int) -> Snapshot:
        return Snapshot(references=tuple(cache.cache))

    def restore(self, cache: Any, saved: Snapshot, at: int, end: int) -> int:
        cache.cache = list(saved.references)
        return saved.nbytes

    def record_undo(self, cache: Any) -> Snapshot:
        return self.snapshot(cache, 0, 0)

    def undo(self, cache: Any, record: Snapshot) -> None:
        self.restore(cache, record, 0, 0)

    def pick(self, cache: Any, rows: Array) -> None:
        cache.cache = [pick_rows(array, rows) for array in cache.cache]
