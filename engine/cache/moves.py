"""From one node of the tree to another at the least cost: trim or undo, put back what was kept, recompute the rest.

Every way leaves the same numbers. What was kept goes back bit for bit; what is recomputed goes through the model the
way it first did.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from engine.cache.kinds import Snapshot, kind_of
from engine.cache.live import KV
from engine.cache.store import KVStore, Segment, UndoRecord
from engine.tree import TokenTree


@dataclass(frozen=True, slots=True)
class MoveCost:
    """What a move got without a forward."""

    kept: int
    """Tokens that stayed in the cache."""
    restored: int
    """Tokens put back from memory."""
    note: str
    """Why tokens that were in the cache could not stay, if so."""
    nbytes: int = 0
    """Of the KV that was put back."""


class Mover:
    """Moves one live cache over one tree.

    Args:
        kv: The cache.
        tree: The tree.
        budget: Bytes that kept KV may take.
    """

    def __init__(self, kv: KV, tree: TokenTree, budget: int) -> None:
        self._kv = kv
        self._tree = tree
        self.kept = KVStore(budget)
        self._bytes = 0
        """Put back in the move under way."""

    def record_step(self, node: int, undo: tuple[Snapshot, ...] | None) -> None:
        """Keep what takes a node's token off again, where trimming won't."""
        if undo is not None and self.kept.budget:
            self.kept.keep_undo(node, UndoRecord(undo, self._kv.layout))

    def keep_branch(self, node: int, shared: int) -> None:
        """Keep the part of the path to `node` that a move to another branch takes out of the cache.

        Args:
            node: The node whose path the cache holds.
            shared: Tokens that both paths share.
        """
        kv, end = self._kv, self._tree[node].depth
        if not self.kept.budget or kv.offset != end or shared >= end or kv.unkeepable() is not None:
            return
        old = self.kept.segment(node)
        if old is not None and old.base <= shared and old.layout == kv.layout:
            self.kept.touch(old)
            return
        saved = kv.snapshot(shared)
        segment = Segment(node, shared, end, kv.chunked_until, kv.layout, kv.quantized(), saved)
        self.kept.keep_segment(segment)

    def move(self, here: int, node: int, want: int) -> MoveCost:
        """Make the cache hold as much as it can of the first `want` tokens of the path to `node`.

        Args:
            here: The node whose path the cache holds, or a beginning of it after a failure.
            node: Where to go.
            want: Tokens to hold: all of the path, or all but the last where its logits are wanted.
        """
        kv = self._kv
        shared = min(self._tree[self._tree.common(here, node)].depth, want, kv.offset)
        if not self._same_chunks(node, kv.chunked_until, shared):
            kv.clear()
            return MoveCost(0, 0, "the prompt was cut into other chunks, and they change the numbers")
        self._bytes = 0
        why = self._shorten(here, shared)
        at = self._extend(node, shared, want)
        if not why and kv.chunked_matters and at < min(want, self._tree[node].start - 1):
            why, shared = "half a prompt can't be gone on from: its cut into chunks changes the numbers", at
        if why and at == shared:  # nothing could be put over what can't be taken off
            kv.clear()
            return MoveCost(0, 0, why)
        return MoveCost(shared, at - shared, why or self._why_missing(want - at), self._bytes)

    def _why_missing(self, count: int) -> str:
        """Why tokens that were computed before are computed again."""
        if not count:
            return ""
        if not self.kept.budget:
            return "no KV of branches is kept: the budget is 0"
        if (cache := self._kv.unkeepable()) is not None:
            return f"the branches of a {kind_of(cache).name} cache can't be kept"
        return f"its KV is not kept any more: the budget is {self.kept.budget / 2**20:g} MiB"

    def _same_chunks(self, node: int, chunked_until: int, depth: int) -> bool:
        """Whether tokens cut into chunks so far are those of the path to a node; matters for few kinds of cache."""
        wanted = self._tree[node].start - 1  # the prompt goes in chunks but for its last token
        return not self._kv.chunked_matters or min(chunked_until, depth) == min(wanted, depth)

    # ---- back -------------------------------------------------------------------------------

    def _shorten(self, here: int, depth: int) -> str:
        """Hold `depth` tokens of the present path; where that can't be, touch nothing and say why."""
        kv = self._kv
        if kv.offset == depth:
            return ""
        why = kv.trim_refusal(depth)
        if not why:
            kv.rewind(depth)
            return ""
        return "" if kv.offset == self._tree[here].depth and self._undo(here, depth) else why

    def _undo(self, here: int, depth: int) -> bool:
        """Take single tokens off until `depth`, and trim once that will do; where it can't be, touch nothing."""
        kv, steps = self._kv, self._undo_steps(here, depth)
        left = self._tree[here].depth - len(steps)
        if depth == 0 or (left > depth and not kv.could_trim(left, depth)):
            return False
        kv.undo(steps)
        return left == depth or not kv.rewind(depth)

    def _undo_steps(self, here: int, depth: int) -> list[tuple[Snapshot, ...]]:
        """Records for the tokens from `here` back to `depth`, as far as they go without a gap."""
        steps = []
        for each in self._tree.up(here):
            records = self.kept.undo(each, self._kv.layout) if self._tree[each].depth > depth else None
            if records is None:
                break
            steps.append(records)
        return steps

    # ---- forth ------------------------------------------------------------------------------

    def _extend(self, node: int, at: int, want: int) -> int:
        """Put kept segments back, one after another, from `at` tokens on; returns how many tokens are held then."""
        for segment in self._useful(node, at, want):
            reach = min(self._tree[self._tree.common(segment.node, node)].depth, want)
            if at < reach and self._restore(segment, node, at, reach):
                at = reach
        return at

    def _useful(self, node: int, at: int, want: int) -> list[Segment]:
        """Segments that end on the path to a node, in its order; then those that end beyond it or on other branches."""
        path = self._tree.nodes(node)[at:want]
        on = [segment for each in path if (segment := self.kept.segment(each)) is not None]
        if on and on[-1].end >= want and all(a.end >= b.base for a, b in pairwise(on)) and on[0].base <= at:
            return on
        return [*on, *(segment for segment in self.kept.segments() if segment not in on)]

    def _restore(self, segment: Segment, node: int, at: int, reach: int) -> bool:
        """Put a segment back over `at` tokens, and hold `reach` then; where it doesn't fit, touch nothing."""
        kv = self._kv
        fits = (
            segment.base <= at
            and segment.quantized == kv.quantized()
            and self._same_chunks(node, segment.chunked_until, reach)
        )
        if any(segment.quantized) and not kv.quantized_at(reach):
            return False  # a path that short was never quantized
        whole = not kv.in_part()
        if not fits or (whole and not self._can_shorten(segment, reach)):
            return False
        end = segment.end if whole else reach
        self._bytes += kv.restore(segment.snapshots, at, end)
        kv.set_offset(end, chunked_until=segment.chunked_until, layout=segment.layout)
        self.kept.touch(segment)
        return end == reach or self._undo(segment.node, reach)

    def _can_shorten(self, segment: Segment, reach: int) -> bool:
        """Whether a segment that only comes back whole can be taken off again down to `reach` tokens."""
        if segment.end == reach:
            return True
        path = [each for each in self._tree.up(segment.node) if self._tree[each].depth > reach]
        kept = [self.kept.undo(each, segment.layout) is not None for each in path]
        left = segment.end - (kept.index(False) if False in kept else len(kept))
        return left == reach or (left > reach and self._kv.could_trim(left, reach))
