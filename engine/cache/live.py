"""The KV cache of one model: making, reading, rewinding and quantizing it (like mlx_lm); and moves between nodes.

`used` counts the bytes that contain tokens, `allocated` the bytes of the arrays: a cache grows by blocks of 256
tokens, and trimming moves its end without freeing memory. mlx_lm's own `size()` and `nbytes` don't report them for
every kind (a quantized cache reports 0 tokens, and fails if it is empty), so both are computed from the arrays.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache as cached
from functools import lru_cache
from itertools import count
from typing import Any, Self

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache
from msgspec import Struct
from msgspec.structs import replace

from engine.cache.kinds import Reading, Snapshot, kind_of
from engine.protocol import CacheKind, KVGroup, KVReading
from engine.settings import LoadSettings
from engine.tree import Chunks, TokenTree, append_chunk, cut_chunks, within_chunk

PIECE = 32
"""Minimum number of tokens to save at once before they are overwritten. Most of the cost is the first use of new
memory: with 0.6 B parameters, 32 tokens take 7 MiB and about 20 ms, compared with 140 ms for a step."""


class BegunByLayer(list[Any]):
    """A list of caches for building a forward pass: each layer starts when the model asks for the next layer's cache.

    A model iterates over its layers and caches together, so the layers before the requested cache have been built. On a
    CPU the device then computes while Python builds the rest; without this, a step of the bundled model takes 1.2 times
    as long.
    """

    def __iter__(self) -> Iterator[Any]:
        before: Any = None
        for cache in super().__iter__():
            if before is not None:
                mx.async_eval(list(kind_of(before).buffers(before)))
            yield cache
            before = cache


class StaleTail(Struct, frozen=True):
    """Tokens of an inactive branch that are still in the arrays, beyond the current length of the caches."""

    node: int
    """Last token of the branch."""
    begin: int
    """Number of tokens of the path before the tail."""
    end: int
    """Number of tokens of the path up to and including `node`."""
    chunks: Chunks
    """`KV.chunks` when the branch was left."""
    layout: int
    """`KV.layout` when the branch was left."""


class KV:
    """The live cache of one session.

    Args:
        model: The loaded model.
        settings: Load settings; `max_kv_size`, `kv_bits`, `kv_group_size` and `quantized_kv_start` are used.
    """

    lazy: bool = True
    """True if `run` returns a lazy graph, which can be built before its token is known and can be discarded."""
    most_at_once: int | None = None
    """Maximum number of tokens of an adaptive chunk if the logits of all of them are computed."""
    reads_prompts: bool = True
    """False on ranks that leave the prompt logprobs to another rank."""

    def __init__(self, model: Any, settings: LoadSettings) -> None:
        self._model = model
        self._settings = settings
        self._new_layout = count(1).__next__
        """Makes a new number for the order of tokens in the rings, which a chunk or a clear changes."""
        self.save: Callable[[StaleTail, int, int], None] = _save_nothing
        """Saves the tokens of a branch from `begin` to `end` before they are overwritten."""
        self.clear()

    def clear(self) -> None:
        """Start over with empty caches."""
        self.caches: list[Any] = make_prompt_cache(self._model, self._settings.max_kv_size)
        """mlx_lm's cache objects, usually one per layer; `kind_of` returns the kind of each."""
        self.offset = 0
        """Number of tokens in the caches; mlx_lm's own counts are not right for every kind."""
        self.chunks: Chunks = ()
        """Stretches of the tokens that the model ran in chunks."""
        self.layout = self._new_layout()
        self.last_pass = (0, 0)
        """Tokens and bytes of the last forward pass that `drop` discarded."""
        self.stale: list[StaleTail] = []
        """Tails of inactive branches in the arrays; no two of them share columns."""

    def adopt(self, caches: list[Any], offset: int, chunks: Chunks) -> None:
        """Use caches that were filled elsewhere.

        Args:
            caches: As many caches as here, of the same classes.
            offset: Number of tokens in them.
            chunks: Stretches of these tokens that the model ran in chunks.
        """
        self.save_stale()
        self.clear()
        self.caches = caches
        self.set_offset(offset, chunks=chunks)

    def copied(self) -> Self:
        """A copy that can be written independently; MLX copies a shared array when it is written."""
        made = copy.copy(self)
        made.caches, made.stale = copy.deepcopy(self.caches), list(self.stale)
        made.save, made.last_pass = _save_nothing, (0, 0)
        return made

    def adopt_rows(self, other: KV, rows: int) -> None:
        """Copy another cache of the same model into several rows.

        Args:
            other: Caches of one row that support several rows; they are not modified.
            rows: Number of copies of the row.
        """
        self.caches, self.stale = [kind_of(cache).repeat(cache, rows) for cache in other.caches], []
        self.set_offset(other.offset, chunks=other.chunks, layout=other.layout)

    def reorder(self, rows: Sequence[int], since: int | None) -> None:
        """Continue with some of several rows.

        Args:
            rows: For each new row, the index of the current row that it continues.
            since: Number of tokens that all rows share; None if the number of rows changes.
        """
        index = mx.array(list(rows))
        columns = [kind_of(cache).reorder(cache, index, since) for cache in self.caches]
        mx.eval(columns, self.state())  # before their source buffers are overwritten
        for cache, copies in zip(self.caches, columns, strict=True):
            kind_of(cache).write_columns(cache, copies, since)

    def drop(self) -> None:
        """Empty the caches after a forward pass without a KV cache, and record its size in `last_pass`."""
        last_pass = self.offset, sum(reading[3] for reading in self.readings())
        self.clear()
        self.last_pass = last_pass

    def run(
        self, compute: Callable[..., Any], tokens: mx.array, *, chunk: bool = False, begin: bool = False
    ) -> mx.array:
        """Compute the logits after some tokens, add the tokens to the caches, and quantize the caches like mlx_lm.

        Args:
            compute: The model, or a function called instead of it.
            tokens: int32 ids, shape (rows, n).
            chunk: True if the tokens are a chunk of a path.
            begin: True to start each layer while the next one is built: see `BegunByLayer`.

        Returns:
            Logits in the model's dtype, shape (rows, n, vocabulary), lazy.
        """
        if self.stale:
            self._write(self.offset, self.offset + tokens.shape[1])
        logits: mx.array = compute(tokens, cache=BegunByLayer(self.caches) if begin else self.caches)
        before, self.offset = self.offset, self.offset + tokens.shape[1]
        if chunk:
            self.chunks = append_chunk(self.chunks, before, self.offset)
            self.layout = self._new_layout()
        if self._settings.kv_bits is not None:
            for index, cache in enumerate(self.caches):
                self.caches[index] = kind_of(cache).quantize(cache, self._settings)
        return logits

    def set_offset(self, offset: int, *, chunks: Chunks | None = None, layout: int | None = None) -> None:
        """Set the token count after tokens were restored or removed cache by cache."""
        self.offset, self.chunks = offset, cut_chunks(self.chunks if chunks is None else chunks, offset)
        self.layout = self.layout if layout is None else layout

    def pending(self) -> list[mx.array]:
        """Arrays that the logits don't depend on, so that they stay lazy until they are evaluated."""
        arrays = []
        for cache in self.caches:
            if (kind := kind_of(cache)).lazy:
                arrays += kind.buffers(cache)
        return arrays

    def shared_ms(self, ms: float) -> float:
        """Make a measured time equal in all processes that compute the model, since decisions depend on it."""
        return ms

    def state(self) -> list[mx.array]:
        """All arrays of all caches, to evaluate after a chunk of prefill."""
        return [array for cache in self.caches for array in kind_of(cache).buffers(cache)]

    # ---- back ---------------------------------------------------------------------------------

    def rewind(self, offset: int) -> str:
        """Shorten the caches to `offset` tokens: trim if every cache can be trimmed, otherwise empty them.

        Args:
            offset: Number of tokens to keep, at most the current offset.

        Returns:
            Reason why the caches were emptied, so that the caller must recompute; empty if they were trimmed.
        """
        if offset == self.offset:
            return ""
        if why := self.trim_refusal(offset):
            self.clear()
            return why
        self.trim(offset)
        return ""

    def trim(self, offset: int) -> None:
        """Trim the caches to `offset` tokens; requires an empty `trim_refusal`."""
        for cache in self.caches:
            cache.trim(self.offset - offset)
        self.set_offset(offset)

    def trim_refusal(self, offset: int) -> str:
        """Reason why the caches can't be trimmed to `offset` tokens; empty if they can."""
        if offset == 0:
            return "nothing of it could be kept"
        packed = False
        for cache in self.caches:
            kind = kind_of(cache)
            if why := kind.trim_refusal(cache, offset):
                return why
            packed = packed or kind.quantized
        if packed and offset < self._settings.quantized_kv_start:
            return "the cache was not quantized there"
        return ""

    def recovered(self, offset: int) -> bool:
        """Return to `offset` tokens after a failed forward pass, which leaves layers of unequal length.

        Returns:
            True if this succeeded for every cache; otherwise the caches are unusable until they are cleared.
        """
        self.set_offset(offset)
        return all(kind_of(cache).recover(cache, offset) for cache in self.caches)

    def could_trim(self, offset: int, to: int) -> bool:
        """True if every cache with `offset` tokens could be trimmed to `to` tokens."""
        if any(self.quantized()) and not self.quantized_at(to):
            return False
        return all(kind_of(cache).trims_at(cache, offset) for cache in self.caches)

    def can_step_back(self) -> bool:
        """True if trimming could remove one more token after it is added."""
        trims = True
        for cache in self.caches:
            trims = trims and kind_of(cache).trims_at(cache, self.offset + 1)
        return trims

    def can_go_ahead(self) -> bool:
        """True if one more token can be added before it is known, and removed again without copying arrays."""
        following = self.offset + 1
        same = self.quantized_at(self.offset) == self.quantized_at(following)
        return same and all(kind_of(cache).goes_ahead(cache, following) for cache in self.caches)

    def undo_records(self) -> tuple[Snapshot, ...] | None:
        """Records to undo the next single token if it can't be trimmed, one for each cache; None if a cache has no
        record."""
        undo_records = [kind_of(cache).record_undo(cache) for cache in self.caches]
        records = tuple(record for record in undo_records if record is not None)
        mx.eval([array for record in records for array in record.copies])
        return records if len(records) == len(undo_records) else None

    def undo(self, steps: Sequence[Sequence[Snapshot]]) -> None:
        """Remove tokens one by one from the end.

        Args:
            steps: The tokens' records from `undo_records`, starting with the last token's.
        """
        for records in steps:
            for cache, record in zip(self.caches, records, strict=True):
                kind_of(cache).undo(cache, record)
        mx.eval(self.state())
        self.set_offset(self.offset - len(steps))

    # ---- segments -----------------------------------------------------------------------------

    def without_snapshots(self) -> tuple[CacheKind, str] | None:
        """Kind and class name of the first cache that doesn't support snapshots and several rows; None if all do."""
        found = ((kind_of(cache), cache) for cache in self.caches)
        without = ((kind.name, type(cache).__name__) for kind, cache in found if not kind.can_snapshot(cache))
        return next(without, None)

    def partial_restore(self) -> bool:
        """True if parts of a snapshot can be restored; False if only complete snapshots can."""
        return all(kind_of(cache).partial_restore for cache in self.caches)

    def snapshot(self, start: int, end: int | None = None) -> tuple[Snapshot, ...]:
        """Save the tokens from `start` to `end` (None for the last) of each cache; the copies are lazy."""
        end = self.offset if end is None else end
        return tuple(kind_of(cache).snapshot(cache, start, end) for cache in self.caches)

    def restore(self, saved: Sequence[Snapshot], at: int, end: int) -> int:
        """Restore a snapshot after the first `at` tokens, up to `end`; the caller sets the offset.

        Returns:
            Number of bytes restored.
        """
        self._write(at, end)
        pairs = zip(self.caches, saved, strict=True)
        nbytes = sum(kind_of(cache).restore(cache, snapshot, at, end) for cache, snapshot in pairs)
        mx.eval(self.state())
        return nbytes

    # ---- tails of inactive branches in the arrays ---------------------------------------------
    # Trimming moves the end of a plain cache and leaves its arrays unchanged. So leaving a branch costs nothing until
    # another branch overwrites it, and then only the overwritten tokens are saved. Returning before needs no copy.

    def stays(self) -> bool:
        """True if trimmed tokens remain in the arrays until others overwrite them."""
        return self._settings.kv_bits is None and all(kind_of(cache).stays for cache in self.caches)

    def take_back(self, stale: StaleTail, end: int) -> None:
        """Extend the caches to `end` tokens with a branch in the arrays that begins at or before the caches' end."""
        for cache in self.caches:
            kind_of(cache).take_back(cache, end)
        self.set_offset(end, chunks=stale.chunks, layout=stale.layout)

    def save_stale(self) -> None:
        """Save all branches in the arrays before these are discarded."""
        self._write(0, max((each.end for each in self.stale), default=0))

    def _write(self, begin: int, end: int) -> None:
        """Save the tokens in the columns that are about to be overwritten, and at least `PIECE` of them."""
        left = []
        for each in self.stale:
            first = max(each.begin, begin)  # the caches keep the tokens before `begin`
            if first < min(end, each.end):
                last = min(each.end, max(end, first + PIECE))
                self.save(each, first, last)
                first = last
            if first < each.end:
                left.append(replace(each, begin=first))
        self.stale = left

    # ---- reading ------------------------------------------------------------------------------

    def reading(self, kept: int = 0, budget: int = 0) -> KVReading:
        """Read every cache; caches with equal values form one group.

        Args:
            kept: Bytes of the KV saved for other branches.
            budget: Limit of these bytes.
        """
        used, allocated, groups = _grouped(tuple(self.readings()))
        return KVReading(self.offset, used, allocated, groups, kept, budget, *self.last_pass)

    def readings(self) -> Iterable[Reading]:
        """The size of each cache."""
        for cache in self.caches:
            yield kind_of(cache).read(cache)

    def kinds(self) -> tuple[CacheKind, ...]:
        """The kind of each cache."""
        return tuple(kind_of(cache).name for cache in self.caches)

    def quantizable(self) -> tuple[tuple[CacheKind, bool], ...]:
        """The kind of each cache, and True if mlx_lm can quantize it."""
        return tuple((kind.name, kind.quantizable) for kind in map(kind_of, self.caches))

    def quantized(self) -> tuple[bool, ...]:
        """True for each cache that contains quantized numbers now."""
        return tuple([kind_of(cache).quantized for cache in self.caches])

    @property
    def rounded(self) -> bool:
        """True if the cached numbers are rounded: a cache is quantized, or mlx_lm would have quantized it by now."""
        for cache in self.caches:
            if kind_of(cache).quantized:
                return True
        return self._settings.kv_bits is not None and self.offset >= self._settings.quantized_kv_start

    def quantized_at(self, offset: int) -> bool:
        """True if mlx_lm would have quantized the plain caches by the time they have `offset` tokens."""
        return self._settings.kv_bits is not None and offset >= self._settings.quantized_kv_start

    @property
    def chunks_matter(self) -> bool:
        """True if the numbers depend on the chunk boundaries.

        mlx_lm quantizes after a chunk, so a chunk's tokens attend to each other unquantized. In a rotating cache that
        keeps its first tokens, the tokens of a chunk don't attend to these, while single tokens do. In all other cases
        the boundaries only change the order of sums.
        """
        for cache in self.caches:
            if getattr(cache, "keep", 0):
                return True
        return self._settings.kv_bits is not None

    def bytes_per_token(self) -> int | None:
        """Bytes that one more token adds to caches that are not empty; None if no cache grows with the text."""
        return sum(kind_of(cache).bytes_per_token(cache) for cache in self.caches) or None


def _save_nothing(stale: StaleTail, begin: int, end: int) -> None:
    """Save nothing, for caches without a store for inactive branches."""


@lru_cache(maxsize=8)
def _grouped(readings: tuple[Reading, ...]) -> tuple[int, int, tuple[KVGroup, ...]]:
    """Bytes used and allocated in all caches, and their groups. Equal readings give the same objects, since a full ring
    or a recurrent state has the same reading at every step.

    Args:
        readings: A reading for each cache, in the model's order.
    """
    places: dict[Reading, list[int]] = {}
    for place, reading in enumerate(readings):
        places.setdefault(reading, []).append(place)
    groups, used, allocated = [], 0, 0
    for (name, held, limit, its_used, its_allocated), layers in places.items():
        groups.append(KVGroup(name, _shared(tuple(layers)), held, limit, its_used, its_allocated))
        used += its_used * len(layers)
        allocated += its_allocated * len(layers)
    return used, allocated, tuple(groups)


@cached
def _shared(layers: tuple[int, ...]) -> tuple[int, ...]:
    """Return one shared tuple for equal ones: a long session has a reading for every step."""
    return layers


# ---- saved KV of inactive branches ------------------------------------------------------------------
# Moves between nodes of the tree cost as little as possible: trim or undo, restore saved KV, recompute the rest. All of
# these give the same numbers. An inactive branch stays in the arrays of a plain cache until another overwrites it; just
# before that, its tokens are saved as segments. Other kinds of cache save a segment when the branch is left, and undo
# records for single tokens. Segments and records share a budget; the least recently used are dropped first. They are
# restored bit for bit. Recomputed tokens run through the model in the same chunks as the first time.


class Segment(StaleTail, frozen=True):
    """Saved KV of the end of a path that the session left; it can be restored into a cache with the `begin` tokens
    before it. Also used for the records that remove one token from the end of the cache."""

    snapshots: tuple[Snapshot, ...]
    quantized: tuple[bool, ...] = ()
    """True for each cache that was quantized; a snapshot can only be restored into a cache of the same kind."""


MOST_UNDO = 4096
"""Maximum number of undo records; the oldest are dropped. Each takes about 4 KB in addition to its arrays, which the
budget doesn't count. Beyond this number of tokens, computing the path again in chunks is faster than undoing it token
by token."""


class KVStore:
    """Segments by their last node, and undo records by the node that they remove.

    Args:
        budget: Maximum bytes of all segments and records together.
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.nbytes = 0
        self._entries: OrderedDict[tuple[str, int], tuple[Segment, int]] = OrderedDict()
        self._undoable: dict[int, None] = {}
        """Nodes with undo records, oldest first."""

    def keep_segment(self, segment: Segment) -> None:
        """Save a segment, unless it is larger than the budget."""
        mx.eval([array for snapshot in segment.snapshots for array in snapshot.copies])
        self._put("segment", segment)

    def keep_undo(self, undo: Segment) -> None:
        """Save the records that remove a node's token."""
        self._put("undo", undo)
        self._undoable.pop(undo.node, None)
        self._undoable[undo.node] = None
        if len(self._undoable) > MOST_UNDO:
            oldest = next(iter(self._undoable))
            del self._undoable[oldest]
            self._drop(("undo", oldest))

    def segment(self, node: int) -> Segment | None:
        """The segment that ends at a node; None if it is not in the store."""
        return self._entries.get(("segment", node), (None, 0))[0]

    def segments(self) -> list[Segment]:
        """All segments, the most recently used first."""
        return [entry for (kind, _), (entry, _) in reversed(self._entries.items()) if kind == "segment"]

    def undo(self, node: int, layout: int) -> tuple[Snapshot, ...] | None:
        """Records that remove a node's token from caches with this layout; None if they are not in the store."""
        undo, _ = self._entries.get(("undo", node), (None, 0))
        return undo.snapshots if undo is not None and undo.layout == layout else None

    def touch(self, segment: Segment) -> None:
        """Make a segment the most recently used, if it is still in the store."""
        if (key := ("segment", segment.node)) in self._entries:
            self._entries.move_to_end(key)

    def _put(self, kind: str, entry: Segment) -> None:
        key, size = (kind, entry.node), sum(snapshot.nbytes for snapshot in entry.snapshots)
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


# ---- moves ------------------------------------------------------------------------------------------

HALF = "a session can't continue from half a prompt: its cut into chunks changes the numbers"


class MoveCost(Struct, frozen=True):
    """Tokens that a move obtained without a forward pass."""

    kept: int
    """Number of tokens that stayed in the cache."""
    restored: int
    note: str
    """Reason why cached tokens had to be removed or recomputed; empty if none were."""
    nbytes: int = 0


class Mover:
    """Moves one live cache over one tree.

    Args:
        kv: The cache.
        tree: The tree.
        store: Saved KV of inactive branches.
    """

    def __init__(self, kv: KV, tree: TokenTree, store: KVStore) -> None:
        self._kv = kv
        self._tree = tree
        self.store = store
        self._bytes = 0
        """Bytes restored so far in the current move."""

    def record_step(self, node: int, undo: tuple[Snapshot, ...]) -> None:
        """Save the records that remove a node's token from the caches if trimming can't."""
        if self.store.budget:
            end, kv = self._tree[node].depth, self._kv
            self.store.keep_undo(Segment(node, end - 1, end, kv.chunks, kv.layout, undo))

    def keep_branch(self, node: int, shared: int) -> None:
        """Save the part of the path to `node` that a move to another branch will remove from the cache.

        Args:
            node: Last node of the path in the cache.
            shared: Number of tokens that both paths share.
        """
        kv, end = self._kv, self._tree[node].depth
        if not self.store.budget or kv.offset != end or shared >= end or kv.without_snapshots() is not None:
            return
        left = StaleTail(node, shared, end, kv.chunks, kv.layout)
        if not kv.stays():
            self._save(left, shared, end)
        elif not self._is_saved(left, node, shared):
            self._leave(left)

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
        if not self._is_saved(left, node, begin):
            saved = kv.snapshot(begin, end)
            segment = Segment(node, begin, end, left.chunks, left.layout, saved, kv.quantized())
            self.store.keep_segment(segment)

    def _is_saved(self, left: StaleTail, node: int, begin: int) -> bool:
        """True if a segment contains the tokens from `begin` up to a node; it becomes the most recently used."""
        old = self.store.segment(node)
        if old is None or old.begin > begin or old.layout != left.layout:
            return False
        self.store.touch(old)
        return True

    def _shared(self, left: StaleTail, node: int) -> int:
        """Number of tokens that the path to a node shares with a branch that was left."""
        return self._tree[self._tree.common_ancestor(left.node, node)].depth

    def move(self, current: int, node: int, want: int) -> MoveCost:
        """Make the cache contain the first `want` tokens of the path to `node`, or as many as possible.

        On an error the cache is emptied.

        Args:
            current: Last node of the path in the cache; after a failure the cache may contain only a beginning of it.
            node: The node to move to.
            want: Number of tokens to obtain: the complete path, or all but the last token if its logits are needed.
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
        if half or (why and held == shared):  # or tokens beyond `shared` are still there
            self._clear()
            return MoveCost(0, 0, why or HALF)
        if not why and held < want:
            why = self._why_missing()
        return MoveCost(shared, held - shared, why, self._bytes)

    def _clear(self) -> None:
        self._kv.save_stale()
        self._kv.clear()

    def _why_missing(self) -> str:
        """Reason why tokens must be computed again."""
        if not self.store.budget:
            return "no KV of branches is kept: the budget is 0"
        if (unsupported := self._kv.without_snapshots()) is not None:
            return f"the branches of a {unsupported[0]} cache can't be kept"
        return f"its KV is not kept any more: the budget is {self.store.budget / 2**20:g} MiB"

    def _same_chunks(self, node: int, chunks: Chunks, depth: int) -> bool:
        """True if `chunks` are those of the path to a node for its first `depth` tokens; relevant if
        `KV.chunks_matter`."""
        return cut_chunks(chunks, depth) == cut_chunks(self._tree.chunks(node), depth)

    # ---- back -------------------------------------------------------------------------------

    def _undo(self, current: int, depth: int) -> bool:
        """Undo tokens one by one down to `depth`, trimming once possible; if that can't work, change nothing."""
        kv, steps = self._kv, self._undo_steps(current, depth, self._kv.layout)
        left = self._tree[current].depth - len(steps)
        if depth == 0 or (left > depth and not kv.could_trim(left, depth)):
            return False
        kv.undo(steps)
        return left == depth or not kv.rewind(depth)

    def _undo_steps(self, current: int, depth: int, layout: int) -> list[tuple[Snapshot, ...]]:
        """Undo records for the tokens from `current` back to `depth`, up to the first that is missing."""
        steps = []
        for node in self._tree.ancestors(current):
            records = self.store.undo(node, layout) if self._tree[node].depth > depth else None
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
        """Yield the segments on the path to a node that cover it from `at` to `want` tokens, in order and without
        nested ones; then all segments, since those may not fit, or a segment of another branch may help."""
        way: list[Segment] = []
        partial = self._kv.partial_restore()
        for ancestor in self._tree.ancestors(node):
            begin = way[-1].begin if way else want
            if not at < min(begin, self._tree[ancestor].depth):
                break
            segment = self.store.segment(ancestor)
            if segment is not None and segment.begin < begin and (partial or segment.end <= want):
                way.append(segment)
        yield from reversed(way)
        yield from self.store.segments()

    def _restore(self, segment: Segment, node: int, at: int, reach: int) -> bool:
        """Restore a segment after `at` tokens, up to `reach` tokens; if it doesn't fit, change nothing."""
        kv = self._kv
        fits = segment.begin <= at and segment.quantized == kv.quantized()
        fits = fits and (not kv.chunks_matter or self._same_chunks(node, segment.chunks, reach))
        if any(segment.quantized) and not kv.quantized_at(reach):
            return False  # a path that short was never quantized
        whole = not kv.partial_restore()
        if not fits or (whole and not self._can_shorten(segment, reach)):
            return False
        end = segment.end if whole else reach
        # Touched first, since the restore saves the branches that it overwrites, and old segments are dropped for them.
        self.store.touch(segment)
        self._bytes += kv.restore(segment.snapshots, at, end)
        kv.set_offset(end, chunks=segment.chunks, layout=segment.layout)
        return end == reach or self._undo(segment.node, reach)

    def _can_shorten(self, segment: Segment, reach: int) -> bool:
        """True if a segment that can only be restored completely can afterwards be undone down to `reach` tokens."""
        left = segment.end - len(self._undo_steps(segment.node, reach, segment.layout))
        return left == reach or (left > reach and self._kv.could_trim(left, reach))
