"""KV of branches that the session left, kept within a budget: ends of paths, and records that undo single tokens.

The least recently used goes first. A move to a dropped branch recomputes its KV.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import mlx.core as mx

from engine.cache.kinds import Snapshot
from engine.chunks import Chunks
from engine.frozen import frozen


@frozen
class Segment:
    """The end of a path, as the cache held it when the session left it."""

    node: int
    """The last token held."""
    base: int
    """Tokens of the path before the segment: it can be restored into a cache that holds these."""
    end: int
    """Tokens of the path up to the node."""
    chunks: Chunks
    """`KV.chunks` when it was kept."""
    layout: int
    """`KV.layout` when it was kept."""
    quantized: tuple[bool, ...]
    """Which caches were quantized then: a snapshot can only be restored into the kind that it was taken from."""
    snapshots: tuple[Snapshot, ...]
    """One for each cache."""


@frozen
class UndoRecord:
    """What removes one token from the end of the cache."""

    records: tuple[Snapshot, ...]
    """One for each cache."""
    layout: int
    """`KV.layout` when it was made: in another layout a ring's columns are at other places."""


class KVStore:
    """Segments by their last node and undo records by theirs.

    Args:
        budget: Bytes that all of them together may keep alive.
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.nbytes = 0
        self._entries: OrderedDict[tuple[str, int], tuple[Segment | UndoRecord, int]] = OrderedDict()

    def keep_segment(self, segment: Segment) -> None:
        """Keep a segment; one that the budget can't hold is not kept."""
        mx.eval([array for snapshot in segment.snapshots for array in snapshot.copies])
        self._put(("segment", segment.node), segment, _nbytes(segment.snapshots))

    def keep_undo(self, node: int, undo: UndoRecord) -> None:
        """Keep the record that undoes a node's token."""
        self._put(("undo", node), undo, _nbytes(undo.records))

    def segment(self, node: int) -> Segment | None:
        """The segment that ends at a node, None where it isn't kept."""
        entry, _ = self._entries.get(("segment", node), (None, 0))
        return entry if isinstance(entry, Segment) else None

    def segments(self) -> list[Segment]:
        """All segments that are kept, the most recently used first."""
        return [entry for entry, _ in reversed(self._entries.values()) if isinstance(entry, Segment)]

    def undo(self, node: int, layout: int) -> tuple[Snapshot, ...] | None:
        """What removes a node's token from a cache of that layout, None where it isn't kept."""
        entry, _ = self._entries.get(("undo", node), (None, 0))
        return entry.records if isinstance(entry, UndoRecord) and entry.layout == layout else None

    def touch(self, segment: Segment) -> None:
        """Make a segment the most recently used."""
        self._entries.move_to_end(("segment", segment.node))

    def _put(self, key: tuple[str, int], entry: Segment | UndoRecord, size: int) -> None:
        if (old := self._entries.pop(key, None)) is not None:
            self.nbytes -= old[1]
        if size > self.budget:
            return
        self._entries[key] = (entry, size)
        self.nbytes += size
        while self.nbytes > self.budget:
            self.nbytes -= self._entries.popitem(last=False)[1][1]


def _nbytes(snapshots: Sequence[Snapshot]) -> int:
    return sum(snapshot.nbytes for snapshot in snapshots)
