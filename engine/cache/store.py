"""KV that was left and is kept, within a budget: the ends of branches, and what takes single tokens off again.

The least recently used goes first. What was dropped is computed again when somebody goes there.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import mlx.core as mx

from engine.cache.parts import Part, Undo, arrays_of, nbytes


@dataclass(frozen=True, slots=True)
class Segment:
    """The end of a path as it stood in the cache when it was left."""

    node: int
    """The last token held."""
    base: int
    """Tokens of the path that are not part of it: a cache that holds so many of them can take it back."""
    end: int
    """Tokens of the path up to the node."""
    cut: int
    """`KV.cut` when it was kept."""
    layout: int
    """`KV.layout` when it was kept."""
    quantized: tuple[bool, ...]
    """Which caches were quantized then: a part goes back into the kind that it was taken from."""
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class UndoRecord:
    """What takes one token off the cache again."""

    undo: tuple[Undo, ...]
    """One for each cache."""
    layout: int
    """`KV.layout` when it was noted: in another layout a ring's columns stand elsewhere."""


class KVStore:
    """Branches by their last node and undo records by theirs.

    Args:
        budget: Bytes that all of them together may keep alive.
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.nbytes = 0
        self._entries: OrderedDict[tuple[str, int], tuple[Segment | UndoRecord, int]] = OrderedDict()

    def keep(self, branch: Segment) -> None:
        """Keep a branch; one that the budget can't hold is not kept."""
        mx.eval([array for part in branch.parts for array in arrays_of(part)])
        self._put(("branch", branch.node), branch, sum(map(nbytes, branch.parts)))

    def note(self, node: int, token: UndoRecord) -> None:
        """Keep what takes a node's token off again."""
        self._put(("undo", node), token, sum(map(_size, token.undo)))

    def branch(self, node: int) -> Segment | None:
        """The branch that ends at a node, None where it isn't kept."""
        entry, _ = self._entries.get(("branch", node), (None, 0))
        return entry if isinstance(entry, Segment) else None

    def branches(self) -> list[Segment]:
        """All branches that are kept, the most recently used first."""
        return [entry for entry, _ in reversed(self._entries.values()) if isinstance(entry, Segment)]

    def undo(self, node: int, layout: int) -> tuple[Undo, ...] | None:
        """What takes a node's token off a cache of that layout again, None where it isn't kept."""
        entry, _ = self._entries.get(("undo", node), (None, 0))
        return entry.undo if isinstance(entry, UndoRecord) and entry.layout == layout else None

    def used(self, branch: Segment) -> None:
        """Note that a branch was put back."""
        self._entries.move_to_end(("branch", branch.node))

    def _put(self, key: tuple[str, int], entry: Segment | UndoRecord, size: int) -> None:
        if (old := self._entries.pop(key, None)) is not None:
            self.nbytes -= old[1]
        if size > self.budget:
            return
        self._entries[key] = (entry, size)
        self.nbytes += size
        while self.nbytes > self.budget:
            self.nbytes -= self._entries.popitem(last=False)[1][1]


def _size(undo: Undo) -> int:
    return sum(map(_size, undo)) if isinstance(undo, tuple) else nbytes(undo)
