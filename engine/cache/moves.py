"""From one node of the tree to another at the least cost: trim or undo, put back what was kept, recompute the rest.

Every way leaves the same numbers. What was kept goes back bit for bit; what is recomputed goes through the model the
way it first did.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import mlx.core as mx

from engine.cache.live import KV, kind_of
from engine.cache.parts import Undo, keepable, put, take, take_off
from engine.cache.store import KVStore, Segment, UndoRecord
from engine.tree import TokenTree


@dataclass(frozen=True, slots=True)
class Bill:
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

    def stepped(self, node: int, undo: tuple[Undo, ...] | None) -> None:
        """Note what takes a node's token off again, where trimming won't."""
        if undo is not None and self.kept.budget:
            self.kept.note(node, UndoRecord(undo, self._kv.layout))

    def leave(self, node: int, shared: int) -> None:
        """Keep the part of the path to `node` that a move to another branch takes out of the cache.

        Args:
            node: Where the cache stands.
            shared: Tokens that both paths share.
        """
        kv, end = self._kv, self._tree[node].depth
        if not self.kept.budget or kv.offset != end or shared >= end or not all(map(keepable, kv.caches)):
            return
        old = self.kept.branch(node)
        if old is not None and old.base <= shared and old.layout == kv.layout:
            self.kept.used(old)
            return
        parts = tuple(take(cache, shared, end) for cache in kv.caches)
        self.kept.keep(Segment(node, shared, end, kv.cut, kv.layout, self._quantized(), parts))

    def bring(self, here: int, node: int, want: int) -> Bill:
        """Make the cache hold as much as it can of the first `want` tokens of the path to `node`.

        Args:
            here: Where the cache stands, or is short of after a failure.
            node: Where to go.
            want: Tokens to hold: all of the path, or all but the last where its logits are wanted.
        """
        kv = self._kv
        shared = min(self._tree[self._tree.common(here, node)].depth, want, kv.offset)
        if not self._alike(node, kv.cut, shared):
            kv.clear()
            return Bill(0, 0, "the prompt was cut into other chunks, and they change the numbers")
        self._bytes = 0
        why = self._back(here, shared)
        at = self._forth(node, shared, want)
        if not why and kv.chunked_matters and at < min(want, self._tree[node].start - 1):
            why, shared = "half a prompt can't be gone on from: its cut into chunks changes the numbers", at
        if why and at == shared:  # nothing could be put over what can't be taken off
            kv.clear()
            return Bill(0, 0, why)
        return Bill(shared, at - shared, why or self._missing(want - at), self._bytes)

    def _missing(self, count: int) -> str:
        """Why tokens that were computed before are computed again."""
        odd = next((cache for cache in self._kv.caches if not keepable(cache)), None)
        if not count:
            return ""
        if not self.kept.budget:
            return "no KV of branches is kept: the budget is 0"
        if odd is not None:
            return f"the branches of a {kind_of(odd)} cache can't be kept"
        return f"its KV is not kept any more: the budget is {self.kept.budget / 2**20:g} MiB"

    def _quantized(self) -> tuple[bool, ...]:
        return tuple(kind_of(cache) == "quantized" for cache in self._kv.caches)

    def _alike(self, node: int, cut: int, depth: int) -> bool:
        """Whether tokens cut so into chunks are those of the path to a node; matters for few kinds of cache."""
        wanted = self._tree[node].start - 1  # the prompt goes in chunks but for its last token
        return not self._kv.chunked_matters or min(cut, depth) == min(wanted, depth)

    # ---- back -------------------------------------------------------------------------------

    def _back(self, here: int, depth: int) -> str:
        """Stand at `depth` tokens of the present path; where that can't be, touch nothing and say why."""
        kv = self._kv
        if kv.offset == depth:
            return ""
        why = kv.stuck(depth)
        if not why:
            kv.rewind(depth)
            return ""
        return "" if kv.offset == self._tree[here].depth and self._take_off(here, depth) else why

    def _take_off(self, here: int, depth: int) -> bool:
        """Take single tokens off until `depth`, and trim once that will do; where it can't be, touch nothing."""
        kv, undos = self._kv, self._undos(here, depth)
        left = self._tree[here].depth - len(undos)
        if depth == 0 or (left > depth and not self._trims(left, depth)):
            return False
        for undo in undos:
            for cache, each in zip(kv.caches, undo, strict=True):
                take_off(cache, each)
        mx.eval(kv.state())
        kv.stands(left)
        return left == depth or not kv.rewind(depth).note

    def _undos(self, here: int, depth: int) -> list[tuple[Undo, ...]]:
        """Records for the tokens from `here` back to `depth`, as far as they go without a gap."""
        found = []
        for each in self._tree.up(here):
            undo = self.kept.undo(each, self._kv.layout) if self._tree[each].depth > depth else None
            if undo is None:
                break
            found.append(undo)
        return found

    def _trims(self, offset: int, depth: int) -> bool:
        """Whether every cache could be trimmed down to `depth` once it stands at `offset`."""
        if any(self._quantized()) and not self._kv.quantized_at(depth):
            return False
        return all(
            kind_of(cache) in ("plain", "quantized")
            or (kind_of(cache) == "rotating" and offset < cache.max_size)
            for cache in self._kv.caches
        )

    # ---- forth ------------------------------------------------------------------------------

    def _forth(self, node: int, at: int, want: int) -> int:
        """Put kept branches back, one after another, from `at` tokens on; returns how many tokens are held then."""
        for branch in self._along(node, at, want):
            reach = min(self._tree[self._tree.common(branch.node, node)].depth, want)
            if at < reach and self._put_back(branch, node, at, reach):
                at = reach
        return at

    def _along(self, node: int, at: int, want: int) -> list[Segment]:
        """Branches that end on the path to a node, in its order; then those that end beyond it or beside it."""
        path = self._tree.nodes(node)[at:want]
        on = [branch for each in path if (branch := self.kept.branch(each)) is not None]
        if on and on[-1].end >= want and all(a.end >= b.base for a, b in pairwise(on)) and on[0].base <= at:
            return on
        return [*on, *(branch for branch in self.kept.branches() if branch not in on)]

    def _put_back(self, branch: Segment, node: int, at: int, reach: int) -> bool:
        """Put a branch back over `at` tokens, and stand at `reach`; where it doesn't fit, touch nothing."""
        kv = self._kv
        fits = (
            branch.base <= at
            and branch.quantized == self._quantized()
            and self._alike(node, branch.cut, reach)
        )
        if any(branch.quantized) and not kv.quantized_at(reach):
            return False  # a path that short was never quantized
        whole = not all(kind_of(cache) in ("plain", "quantized") for cache in kv.caches)
        if not fits or (whole and not self._shortens(branch, reach)):
            return False
        end = branch.end if whole else reach
        for cache, part in zip(kv.caches, branch.parts, strict=True):
            self._bytes += put(cache, part, at, end)
        mx.eval(kv.state())
        kv.stands(end, cut=branch.cut, layout=branch.layout)
        self.kept.used(branch)
        return end == reach or self._take_off(branch.node, reach)

    def _shortens(self, branch: Segment, reach: int) -> bool:
        """Whether a branch that only comes back whole can be taken off again down to `reach` tokens."""
        if branch.end == reach:
            return True
        path = [each for each in self._tree.up(branch.node) if self._tree[each].depth > reach]
        kept = [self.kept.undo(each, branch.layout) is not None for each in path]
        left = branch.end - (kept.index(False) if False in kept else len(kept))
        return left == reach or (left > reach and self._trims(left, reach))
