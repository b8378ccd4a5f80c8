"""Caches made of caches, of layers that hold both keys and values and a state: operations go to the inner caches."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from mlx_lm.models import cache as caches

from engine.cache.kinds.kind import Array, Kind, Snapshot
from engine.frozen import frozen


@frozen
class Parts(Snapshot):
    """A snapshot of each inner cache."""

    parts: tuple[Snapshot, ...] = ()


def _parts(parts: tuple[Snapshot, ...]) -> Parts:
    copies = tuple(array for part in parts for array in part.copies)
    return Parts(copies, tuple(array for part in parts for array in part.references), parts)


class Composite(Kind):
    """Every operation goes to the inner caches.

    Args:
        kind_of: The kind of an inner cache.
    """

    name = "list"
    cache_class = caches.CacheList

    def __init__(self, kind_of: Callable[[Any], Kind]) -> None:
        self._kind_of = kind_of

    def _inner(self, cache: Any) -> list[tuple[Kind, Any]]:
        return [(self._kind_of(inner), inner) for inner in cache.caches]

    def can_snapshot(self, cache: Any) -> bool:
        """Where all inner caches are."""
        return all(kind.can_snapshot(inner) for kind, inner in self._inner(cache))

    def buffers(self, cache: Any) -> list[Array]:
        return [array for kind, inner in self._inner(cache) for array in kind.buffers(inner)]

    def held(self, cache: Any) -> int:
        """The most that one of them holds."""
        return max((kind.held(inner) for kind, inner in self._inner(cache)), default=0)

    def used(self, cache: Any) -> int:
        return sum(kind.used(inner) for kind, inner in self._inner(cache))

    def bytes_per_token(self, cache: Any) -> int:
        return sum(kind.bytes_per_token(inner) for kind, inner in self._inner(cache))

    def snapshot(self, cache: Any, start: int, end: int) -> Parts:
        return _parts(tuple(kind.snapshot(inner, start, end) for kind, inner in self._inner(cache)))

    def restore(self, cache: Any, saved: Parts, at: int, end: int) -> int:
        pairs = zip(self._inner(cache), saved.parts, strict=True)
        return sum(kind.restore(inner, part, at, end) for (kind, inner), part in pairs)

    def trim_refusal(self, cache: Any, offset: int) -> str:
        """See `Kind`; the first reason of an inner cache."""
        reasons = (kind.trim_refusal(inner, offset) for kind, inner in self._inner(cache))
        return super().trim_refusal(cache, offset) or next(filter(None, reasons), "")

    def record_undo(self, cache: Any) -> Parts | None:
        records = [kind.record_undo(inner) for kind, inner in self._inner(cache)]
        known = tuple(record for record in records if record is not None)
        return _parts(known) if len(known) == len(records) else None

    def undo(self, cache: Any, record: Parts) -> None:
        for (kind, inner), part in zip(self._inner(cache), record.parts, strict=True):
            kind.undo(inner, part)

    def repeat(self, cache: Any, count: int) -> Any:
        repeated = copy.copy(cache)
        repeated.caches = tuple(kind.repeat(inner, count) for kind, inner in self._inner(cache))
        return repeated

    def reorder(self, cache: Any, rows: Array, since: int | None) -> list[Any]:
        """See `Kind`: a list of columns for each inner cache."""
        return [kind.reorder(inner, rows, since) for kind, inner in self._inner(cache)]

    def write_columns(self, cache: Any, columns: list[Any], since: int | None) -> None:
        for (kind, inner), part in zip(self._inner(cache), columns, strict=True):
            kind.write_columns(inner, part, since)
