"""The KV cache of one model: creating, reading, rewinding and, as mlx_lm does, quantizing it.

`used` counts the bytes that contain tokens, `allocated` the bytes of the arrays: a cache grows by blocks of 256
tokens, and trimming moves its end without freeing memory. mlx_lm's own `size()` and `nbytes` report neither for every
kind (a quantized cache reports 0 tokens, and fails while it is empty), so both are computed from the arrays here.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
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
from engine.tree import Chunks, append_chunk, cut_chunks

PIECE = 32
"""Minimum number of tokens to save at once before they are overwritten. Most of the cost is the first use of new
memory: for 0.6 B parameters 32 tokens take 7 MiB and some 20 ms, compared with 140 ms for a step."""


class StaleTail(Struct, frozen=True):
    """Tokens of an abandoned branch that are still in the arrays, beyond the caches' current length."""

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
        settings: `max_kv_size`, `kv_bits`, `kv_group_size` and `quantized_kv_start` are used.
        offset: Number of tokens in the caches; the only count that is right for every kind.
    """

    lazy: bool = True
    """True if `run` returns a lazy graph that can be built before its token is known, and discarded."""
    most_at_once: int | None = None
    """Maximum number of tokens of an adaptive chunk if the logits of all of them are computed."""

    def __init__(self, model: Any, settings: LoadSettings) -> None:
        self._model = model
        self._settings = settings
        self._new_layout = count(1).__next__
        """Makes a number for the order of tokens in the rings: a chunk or empty caches change that order."""
        self.save: Callable[[StaleTail, int, int], None] = _save_nothing
        """Saves tokens of a branch, from `begin` to `end`, before they are overwritten."""
        self.clear()

    def clear(self) -> None:
        """Start over with empty caches."""
        self.caches: list[Any] = make_prompt_cache(self._model, self._settings.max_kv_size)
        """mlx_lm's cache objects, usually one a layer; `kind_of` gives the kind of each."""
        self.offset = 0
        self.chunks: Chunks = ()
        """Stretches of the tokens that the model ran in chunks."""
        self.layout = self._new_layout()
        self.last_pass = (0, 0)
        """Tokens and bytes of the last forward pass that `drop` discarded."""
        self.stale: list[StaleTail] = []
        """Tails of abandoned branches in the arrays; no two of them share columns."""

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
        """A copy that can be written independently; MLX copies a shared array when one of its users writes it."""
        made = copy.copy(self)
        made.caches, made.stale = copy.deepcopy(self.caches), list(self.stale)
        made.save, made.last_pass = _save_nothing, (0, 0)
        return made

    def adopt_rows(self, other: KV, rows: int) -> None:
        """Copy another cache of the same model into several rows.

        Args:
            other: Cache of one row, which supports several rows; not modified.
            rows: Number of copies of its row.
        """
        self.caches, self.stale = [kind_of(cache).repeat(cache, rows) for cache in other.caches], []
        self._hold(other.offset, other.chunks, other.layout)

    def reorder(self, rows: Sequence[int], since: int | None) -> None:
        """Continue with some of several rows.

        Args:
            rows: For each new row the index of the present row that it continues.
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

    def run(self, compute: Callable[..., Any], tokens: mx.array, *, chunk: bool = False) -> mx.array:
        """Compute the logits after some tokens, add the tokens to the caches, and quantize them as mlx_lm does.

        Args:
            compute: The model, or a function called instead of it.
            tokens: int32 ids, shape (rows, n).
            chunk: True if the tokens are a chunk of a path.

        Returns:
            Logits in the model's dtype, shape (rows, n, vocabulary), not evaluated.
        """
        if self.stale:
            self._write(self.offset, self.offset + tokens.shape[1])
        logits: mx.array = compute(tokens, cache=self.caches)
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
        self._hold(
            offset, self.chunks if chunks is None else chunks, self.layout if layout is None else layout
        )

    def _hold(self, offset: int, chunks: Chunks, layout: int) -> None:
        if chunks and chunks[-1][1] > offset:
            chunks = cut_chunks(chunks, offset)
        self.offset, self.chunks, self.layout = offset, chunks, layout

    def pending(self) -> list[mx.array]:
        """Arrays that the logits don't depend on, and which therefore stay a lazy graph until they are evaluated."""
        arrays = []
        for cache in self.caches:
            if (kind := kind_of(cache)).lazy:
                arrays += kind.buffers(cache)
        return arrays

    def state(self) -> list[mx.array]:
        """All arrays of all caches, to evaluate after a chunk of prefill."""
        arrays: list[mx.array] = []
        for cache in self.caches:
            arrays += kind_of(cache).buffers(cache)
        return arrays

    # ---- back ---------------------------------------------------------------------------------

    def rewind(self, offset: int) -> str:
        """Shorten the caches to `offset` tokens: trim if every cache can be trimmed, otherwise empty them.

        Args:
            offset: Number of tokens to keep, at most the present offset.

        Returns:
            Reason why the caches had to be emptied, after which the caller must recompute; empty if they were
            trimmed.
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
        self._hold(offset, self.chunks, self.layout)

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
        """Return to `offset` tokens after a forward pass that failed part of the way and left layers of unequal
        length.

        Returns:
            True if every cache could; otherwise they are unusable until they are cleared.
        """
        self._hold(offset, self.chunks, self.layout)
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
        """True if one more token can be added before it is known, and removed again, without copying an array."""
        following = self.offset + 1
        return self.quantized_at(self.offset) == self.quantized_at(following) and all(
            kind_of(cache).goes_ahead(cache, following) for cache in self.caches
        )

    def undo_records(self) -> tuple[Snapshot, ...] | None:
        """Records to undo the next single token, one for each cache, for when it can't be trimmed; None if a cache
        has no record."""
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
        self._hold(self.offset - len(steps), self.chunks, self.layout)

    # ---- segments -----------------------------------------------------------------------------

    def without_snapshots(self) -> tuple[CacheKind, str] | None:
        """Kind and class name of the first cache without support for snapshots and several rows; None if all have
        it."""
        found = ((kind_of(cache), cache) for cache in self.caches)
        without = ((kind.name, type(cache).__name__) for kind, cache in found if not kind.can_snapshot(cache))
        return next(without, None)

    def partial_restore(self) -> bool:
        """True if a part of a snapshot can be restored; False if only the complete snapshot."""
        return all(kind_of(cache).partial_restore for cache in self.caches)

    def snapshot(self, start: int, end: int | None = None) -> tuple[Snapshot, ...]:
        """Save the tokens from `start` to `end` (None for all) of each cache; the copies are not evaluated."""
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

    # ---- tails of abandoned branches in the arrays --------------------------------------------
    # Trimming moves the end of a plain cache and leaves its arrays unchanged. So leaving a branch costs nothing until
    # another branch overwrites it; then only the overwritten tokens are saved; returning earlier needs no copy.

    def stays(self) -> bool:
        """True if trimmed tokens remain in the arrays until others overwrite them."""
        return self._settings.kv_bits is None and all(kind_of(cache).stays for cache in self.caches)

    def take_back(self, stale: StaleTail, end: int) -> None:
        """Extend the caches to `end` tokens with a branch in the arrays, which begins at or before their end."""
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

        mlx_lm quantizes after a chunk, so a chunk's tokens attend to each other unquantized. And in a rotating cache
        that keeps its first tokens, the tokens of a chunk don't attend to these, while single tokens do. Everywhere
        else the boundaries only change the order of sums.
        """
        for cache in self.caches:
            if getattr(cache, "keep", 0):
                return True
        return self._settings.kv_bits is not None

    def bytes_per_token(self) -> int | None:
        """Bytes that one more token adds to caches that are not empty; None if no kind grows with the text."""
        return sum(kind_of(cache).bytes_per_token(cache) for cache in self.caches) or None


def _save_nothing(stale: StaleTail, begin: int, end: int) -> None:
    """Save nothing: for a cache without a store for its branches."""


@lru_cache(maxsize=8)
def _grouped(readings: tuple[Reading, ...]) -> tuple[int, int, tuple[KVGroup, ...]]:
    """Bytes used and allocated in all caches, and their groups. Equal readings return the same objects: those of a
    full ring or a recurrent state are equal at every step.

    Args:
        readings: One for each cache, in the order of the model.
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
