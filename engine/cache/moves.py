"""Moves between nodes of the tree at the lowest cost: trim or undo, restore saved KV, recompute the rest.

All of these give the same numbers. An abandoned branch stays in the arrays of a plain cache until others overwrite
it. Before that, its tokens are saved as segments; other kinds of cache save a segment when the branch is left, and
undo records for single tokens. Segments and records share a budget, with the least recently used dropped first, and
are restored bit for bit. Recomputed tokens go through the model in the same chunks as the first time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence

import mlx.core as mx
from msgspec import Struct
from msgspec.structs import replace

from engine.cache.kinds import Snapshot
from engine.cache.live import KV, StaleTail
from engine.tree import Chunks, TokenTree, cut_chunks, within_chunk


class Segment(Struct, frozen=True):
    """Saved KV of the end of a path, made when the session left it."""

    node: int
    """Last token of the segment."""
    base: int
    """Number of tokens of the path before the segment: it can be restored into a cache that has these."""
    end: int
    """Number of tokens of the path up to and including `node`."""
    chunks: Chunks
    """`KV.chunks` when the segment was saved."""
    layout: int
    """`KV.layout` when the segment was saved."""
    quantized: tuple[bool, ...]
    """True for each cache that was quantized: a snapshot can only be restored into a cache of the same kind."""
    snapshots: tuple[Snapshot, ...]
    """One snapshot for each cache."""


class UndoRecord(Struct, frozen=True):
    """Data to remove one token from the end of the cache."""

    records: tuple[Snapshot, ...]
    """One record for each cache."""
    layout: int
    """`KV.layout` when the record was made: another layout has the ring's columns in other places."""


MOST_UNDO = 4096
"""Maximum number of undo records; the oldest are dropped. Each takes some 4 KB in addition to its arrays, which the
budget doesn't count; and beyond so many tokens, computing the path again in chunks is faster than undoing it token by
token."""


class KVStore:
    """Segments by their last node, and undo records by the node that they remove.

    Args:
        budget: Bytes that all of them together may keep in memory.
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.nbytes = 0
        self._entries: OrderedDict[tuple[str, int], tuple[Segment | UndoRecord, int]] = OrderedDict()
        self._undoable: dict[int, None] = {}
        """Nodes with undo records, oldest first."""

    def keep_segment(self, segment: Segment) -> None:
        """Save a segment, unless it is larger than the budget."""
        mx.eval([array for snapshot in segment.snapshots for array in snapshot.copies])
        self._put(("segment", segment.node), segment, _nbytes(segment.snapshots))

    def keep_undo(self, node: int, undo: UndoRecord) -> None:
        """Save the record that removes a node's token."""
        self._put(("undo", node), undo, _nbytes(undo.records))
        self._undoable.pop(node, None)
        self._undoable[node] = None
        if len(self._undoable) > MOST_UNDO:
            oldest = next(iter(self._undoable))
            del self._undoable[oldest]
            self._drop(("undo", oldest))

    def segment(self, node: int) -> Segment | None:
        """The segment that ends at a node; None if it is not in the store."""
        entry, _ = self._entries.get(("segment", node), (None, 0))
        return entry if isinstance(entry, Segment) else None

    def segments(self) -> list[Segment]:
        """All segments, the most recently used first."""
        return [entry for entry, _ in reversed(self._entries.values()) if isinstance(entry, Segment)]

    def undo(self, node: int, layout: int) -> tuple[Snapshot, ...] | None:
        """Records that remove a node's token from caches of that layout; None if they are not in the store."""
        entry, _ = self._entries.get(("undo", node), (None, 0))
        return entry.records if isinstance(entry, UndoRecord) and entry.layout == layout else None

    def touch(self, segment: Segment) -> None:
        """Make a segment the most recently used, if it is still in the store."""
        if (key := ("segment", segment.node)) in self._entries:
            self._entries.move_to_end(key)

    def _put(self, key: tuple[str, int], entry: Segment | UndoRecord, size: int) -> None:
        self._drop(key)
        if size > self.budget:
            return
        self._entries[key] = (entry, size)
        self.nbytes += size
        while self.nbytes > self.budget:
            self.nbytes -= self._entries.popitem(last=False)[1][1]

    def _drop(self, key: tuple[str, int]) -> None:
        if (old := self._entries.pop(key, None)) is not None:
            self.nbytes -= old[1]


def _nbytes(snapshots: Sequence[Snapshot]) -> int:
    return sum(snapshot.nbytes for snapshot in snapshots)


# ---- moves ------------------------------------------------------------------------------------------

HALF = "a session can't continue from half a prompt: its cut into chunks changes the numbers"


class MoveCost(Struct, frozen=True):
    """Tokens that a move obtained without a forward pass."""

    kept: int
    """Tokens that stayed in the cache."""
    restored: int
    """Tokens restored from memory."""
    note: str
    """Reason why cached tokens had to be removed or recomputed; empty if none were."""
    nbytes: int = 0
    """Bytes of the restored KV."""


class Mover:
    """Moves one live cache over one tree.

    Args:
        kv: The cache.
        tree: The tree.
        store: Saved KV of branches that were left.
    """

    def __init__(self, kv: KV, tree: TokenTree, store: KVStore) -> None:
        self._kv = kv
        self._tree = tree
        self.store = store
        self._bytes = 0
        """Bytes restored so far in the current move."""

    def record_step(self, node: int, undo: tuple[Snapshot, ...]) -> None:
        """Save the record that removes a node's token from the cache, for when trimming can't."""
        if self.store.budget:
            self.store.keep_undo(node, UndoRecord(undo, self._kv.layout))

    def keep_branch(self, node: int, shared: int) -> None:
        """Save the part of the path to `node` that a move to another branch removes from the cache.

        Args:
            node: Last node of the path in the cache.
            shared: Number of tokens that both paths share.
        """
        kv, end = self._kv, self._tree[node].depth
        if not self.store.budget or kv.offset != end or shared >= end or kv.without_snapshots() is not None:
            return
        old = self.store.segment(node)
        if old is not None and old.base <= shared and old.layout == kv.layout:
            self.store.touch(old)
            return
        left = StaleTail(node, shared, end, kv.chunks, kv.layout)
        if kv.stays():
            self._leave(left)
        else:
            self._save(left, shared, end)

    def _leave(self, left: StaleTail) -> None:
        """Record a branch that stays in the arrays; if a recorded one begins with it, extend that one instead."""
        kv = self._kv
        kv.save = self._save
        for place, each in enumerate(kv.stale):
            if each.begin <= left.end <= self._shared(each, left.node):
                kv.stale[place] = replace(each, begin=min(each.begin, left.begin))
                return
        kv.stale.append(left)

    def _save(self, left: StaleTail, begin: int, end: int) -> None:
        """Save some tokens of a branch that was left, unless they are saved already."""
        node, kv = left.node, self._kv
        while self._tree[node].depth > end:
            node = self._tree[node].parent
        old = self.store.segment(node)
        if old is not None and old.base <= begin and old.layout == left.layout:
            self.store.touch(old)
            return
        saved = kv.snapshot(begin, end)
        self.store.keep_segment(Segment(node, begin, end, left.chunks, left.layout, kv.quantized(), saved))

    def _shared(self, left: StaleTail, node: int) -> int:
        """Number of tokens that the path to a node shares with a branch that was left."""
        return self._tree[self._tree.common_ancestor(left.node, node)].depth

    def move(self, current: int, node: int, want: int) -> MoveCost:
        """Make the cache contain the first `want` tokens of the path to `node`, or as many as possible.

        On an error the cache is emptied.

        Args:
            current: Last node of the path in the cache; after a failure the cache may have only a beginning of it.
            node: The node to move to.
            want: Number of tokens wanted: the complete path, or all but the last token if its logits are needed.
        """
        try:
            return self._move(current, node, want)
        except BaseException:
            self._kv.clear()  # it may contain a part of either path, and wrong KV raises no error
            raise

    def _move(self, current: int, node: int, want: int) -> MoveCost:
        kv = self._kv
        chunks_matter = kv.chunks_matter
        shared = min(self._tree[self._tree.common_ancestor(current, node)].depth, want, kv.offset)
        if chunks_matter and not self._same_chunks(node, kv.chunks, shared):
            self._clear()
            return MoveCost(0, 0, "the prompt was cut into other chunks, and they change the numbers")
        self._bytes = 0
        why = ""
        if kv.offset != shared:  # trimmed or undone; if neither is possible, nothing has changed
            if not (why := kv.trim_refusal(shared)):
                kv.trim(shared)
            elif kv.offset == self._tree[current].depth and self._undo(current, shared):
                why = ""
        held = self._extend(node, shared, want) if shared < want else shared
        half = chunks_matter and held < want and within_chunk(self._tree.chunks(node), held)
        if half or (why and held == shared):  # or nothing was restored over tokens that can't be removed
            self._clear()
            return MoveCost(0, 0, why or HALF)
        if not why and held < want:
            why = self._why_missing()
        return MoveCost(shared, held - shared, why, self._bytes)

    def _clear(self) -> None:
        self._kv.save_stale()
        self._kv.clear()

    def _why_missing(self) -> str:
        """Reason why tokens that were computed before are computed again."""
        if not self.store.budget:
            return "no KV of branches is kept: the budget is 0"
        if (unsupported := self._kv.without_snapshots()) is not None:
            return f"the branches of a {unsupported[0]} cache can't be kept"
        return f"its KV is not kept any more: the budget is {self.store.budget / 2**20:g} MiB"

    def _same_chunks(self, node: int, chunks: Chunks, depth: int) -> bool:
        """True if `depth` tokens ran in the same chunks as those of the path to a node; relevant if
        `KV.chunks_matter`."""
        return cut_chunks(chunks, depth) == cut_chunks(self._tree.chunks(node), depth)

    # ---- back -------------------------------------------------------------------------------

    def _undo(self, current: int, depth: int) -> bool:
        """Remove tokens one by one down to `depth`, trimming once possible; if neither works, change nothing."""
        kv, steps = self._kv, self._undo_steps(current, depth)
        left = self._tree[current].depth - len(steps)
        if depth == 0 or (left > depth and not kv.could_trim(left, depth)):
            return False
        kv.undo(steps)
        return left == depth or not kv.rewind(depth)

    def _undo_steps(self, current: int, depth: int) -> list[tuple[Snapshot, ...]]:
        """Undo records for the tokens from `current` back to `depth`, up to the first that is missing."""
        steps = []
        for node in self._tree.ancestors(current):
            records = self.store.undo(node, self._kv.layout) if self._tree[node].depth > depth else None
            if records is None:
                break
            steps.append(records)
        return steps

    # ---- forward ----------------------------------------------------------------------------

    def _extend(self, node: int, at: int, want: int) -> int:
        """Extend the cache from `at` tokens with tails in the arrays and saved segments, one after another.

        Returns:
            Number of tokens in the cache afterwards.
        """
        before = -1
        while before < at < want:  # the segments of one branch may continue where those of another end
            before = at
            at = self._take_back(node, at, want)
            for segment in self._useful(node, at, want):
                if at == want:
                    break
                reach = min(self._tree[self._tree.common_ancestor(segment.node, node)].depth, want)
                if at < reach and self._restore(segment, node, at, reach):
                    at = self._take_back(node, reach, want)
        return at

    def _take_back(self, node: int, at: int, want: int) -> int:
        """Extend the cache with a branch in the arrays along the path to a node; returns the new token count."""
        kv = self._kv
        for left in kv.stale:
            reach = min(self._shared(left, node), want)
            if left.begin <= at == kv.offset < reach:
                self._bytes += (reach - at) * (kv.bytes_per_token() or 0)
                kv.take_back(left, reach)
                return reach
        return at

    def _useful(self, node: int, at: int, want: int) -> Iterator[Segment]:
        """Yield the segments on the path to a node that cover it from `at` to `want` tokens, in the path's order and
        without nested ones; then all segments, since the first ones may not fit, or one of another branch may help."""
        way: list[Segment] = []
        partial = self._kv.partial_restore()
        for ancestor in self._tree.ancestors(node):
            begin = way[-1].base if way else want
            if not at < min(begin, self._tree[ancestor].depth):
                break
            segment = self.store.segment(ancestor)
            if segment is not None and segment.base < begin and (partial or segment.end <= want):
                way.append(segment)
        yield from reversed(way)
        yield from self.store.segments()

    def _restore(self, segment: Segment, node: int, at: int, reach: int) -> bool:
        """Restore a segment after `at` tokens, up to `reach` tokens; if it doesn't fit, change nothing."""
        kv = self._kv
        fits = (
            segment.base <= at
            and segment.quantized == kv.quantized()
            and (not kv.chunks_matter or self._same_chunks(node, segment.chunks, reach))
        )
        if any(segment.quantized) and not kv.quantized_at(reach):
            return False  # a path that short was never quantized
        whole = not kv.partial_restore()
        if not fits or (whole and not self._can_shorten(segment, reach)):
            return False
        end = segment.end if whole else reach
        # Touched before the restore overwrites, and so saves, other branches: the oldest segments make room for them.
        self.store.touch(segment)
        self._bytes += kv.restore(segment.snapshots, at, end)
        kv.set_offset(end, chunks=segment.chunks, layout=segment.layout)
        return end == reach or self._undo(segment.node, reach)

    def _can_shorten(self, segment: Segment, reach: int) -> bool:
        """True if a segment that can only be restored completely can then be undone down to `reach` tokens."""
        if segment.end == reach:
            return True
        path = [node for node in self._tree.ancestors(segment.node) if self._tree[node].depth > reach]
        undoable = [self.store.undo(node, segment.layout) is not None for node in path]
        left = segment.end - (undoable.index(False) if False in undoable else len(undoable))
        return left == reach or (left > reach and self._kv.could_trim(left, reach))
