"""The KV cache of one model: made, read, rewound and, where mlx_lm would, quantized.

`used` counts the bytes that hold tokens, `allocated` what the arrays take: a cache grows by blocks of 256 tokens,
and trimming moves its end without freeing memory. mlx_lm's own `size()` and `nbytes` report neither for every
kind (a quantized cache reports 0 tokens, and fails while it is empty), so both are read off the arrays here.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache as cached
from functools import lru_cache
from itertools import count
from typing import Any, Self

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache
from msgspec import Struct
from msgspec.structs import replace

from engine.cache.kind import Reading, Snapshot
from engine.cache.kinds import kind_of
from engine.protocol import CacheKind, KVGroup, KVReading
from engine.settings import LoadSettings
from engine.tree import Chunks, append_chunk, cut_chunks


class BegunByLayer(list[Any]):
    """The caches of a model that is about to build a forward: as it asks for that of a layer, those before are begun.

    A model goes through its layers and their caches together, so that the layers before the cache that it takes are
    built by then. The device then computes while Python builds the rest: half a millisecond of eight small layers.
    """

    def __iter__(self) -> Iterator[Any]:
        before: Any = None
        for cache in super().__iter__():
            if before is not None:
                mx.async_eval(list(kind_of(before).buffers(before)))
            yield cache
            before = cache


PIECE = 32
"""Tokens at least that are saved at once before others are written over them. Memory that is taken for the first time
costs the most of it: of 0.6 B parameters 32 tokens take 7 MiB and some 20 ms, a step 140."""


class Behind(Struct, frozen=True):
    """Tokens of a branch that was left, which are still in the arrays behind those that the caches hold."""

    node: int
    """The branch's last token."""
    begin: int
    """Tokens of the path before them."""
    end: int
    """Tokens of the path up to the node."""
    chunks: Chunks
    """`KV.chunks` when it was left."""
    layout: int
    """`KV.layout` then."""


class KV:
    """The live cache of one session.

    Args:
        model: The loaded model.
        settings: `max_kv_size`, `kv_bits`, `kv_group_size` and `quantized_kv_start` are used.
        offset: Tokens the caches hold; the one count that is true for every kind.
    """

    lazy: bool = True
    """True if `run` leaves a graph that can be built before its token is known, and dropped."""
    most_at_once: int | None = None
    """Tokens of an adapting chunk at most, where all their logits are computed."""
    reads_prompts: bool = True
    """False on ranks that leave the prompt logprobs to another one."""

    def __init__(self, model: Any, settings: LoadSettings) -> None:
        self._model = model
        self._settings = settings
        self._new_layout = count(1).__next__
        """A number for the order of tokens in the rings: a chunk or a new beginning changes that order."""
        self.save: Callable[[Behind, int, int], None] = _save_nothing
        """Saves tokens of a branch, from `begin` to `end`, that are about to be written over."""
        self.clear()

    def clear(self) -> None:
        """Start over with empty caches."""
        self.caches: list[Any] = make_prompt_cache(self._model, self._settings.max_kv_size)
        """mlx_lm's objects, usually one a layer; their `kind_of` knows what is in them."""
        self.offset = 0
        self.chunks: Chunks = ()
        """Which of the tokens the model ran in chunks."""
        self.layout = self._new_layout()
        self.last_pass = (0, 0)
        """Tokens and bytes of the last pass that `drop` discarded."""
        self.behind: list[Behind] = []
        """Branches whose tokens are in the arrays, no two of them in the same columns."""

    def adopt(self, caches: list[Any], offset: int, chunks: Chunks) -> None:
        """Hold caches that were filled elsewhere.

        Args:
            caches: As many and of the same classes as those here.
            offset: Tokens that they hold.
            chunks: Which of them ran in chunks.
        """
        self.save_behind()
        self.clear()
        self.caches = caches
        self.set_offset(offset, chunks=chunks)

    def copied(self) -> Self:
        """Another one that holds the same and can be written; MLX copies a shared array when one of them writes it."""
        made = copy.copy(self)
        made.caches, made.behind = copy.deepcopy(self.caches), list(self.behind)
        made.save, made.last_pass = _save_nothing, (0, 0)
        return made

    def adopt_rows(self, other: KV, rows: int) -> None:
        """Hold what another cache of the same model holds, in several rows.

        Args:
            other: Of one row, and caches that can all have several; not written.
            rows: How often to hold its row.
        """
        self.caches, self.behind = [kind_of(cache).repeat(cache, rows) for cache in other.caches], []
        self._hold(other.offset, other.chunks, other.layout)

    def reorder(self, rows: Sequence[int], since: int | None) -> None:
        """Continue with some of several rows.

        Args:
            rows: For each new row the present one that it continues.
            since: Tokens that all rows share; None where the number of rows changes.
        """
        index = mx.array(list(rows))
        columns = [kind_of(cache).reorder(cache, index, since) for cache in self.caches]
        mx.eval(columns, self.state())  # before their source buffers are written
        for cache, copies in zip(self.caches, columns, strict=True):
            kind_of(cache).write_columns(cache, copies, since)

    def drop(self) -> None:
        """Start over after a pass that keeps nothing, and record its size in `last_pass`."""
        last_pass = self.offset, sum(reading[3] for reading in self.readings())
        self.clear()
        self.last_pass = last_pass

    def run(
        self, compute: Callable[..., Any], tokens: mx.array, *, chunk: bool = False, begin: bool = False
    ) -> mx.array:
        """Compute the logits after some tokens, which the caches count from here on; they quantize as mlx_lm does.

        Args:
            compute: A model, or what is called in its place.
            tokens: int32 ids, shape (rows, n).
            chunk: Whether they are a chunk of a path.
            begin: Whether each layer is begun while the next one is built: `BegunByLayer`.

        Returns:
            In the model's dtype, shape (rows, n, vocabulary), not evaluated.
        """
        if self.behind:
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
        """Account for tokens that were restored or removed cache by cache."""
        self._hold(
            offset, self.chunks if chunks is None else chunks, self.layout if layout is None else layout
        )

    def _hold(self, offset: int, chunks: Chunks, layout: int) -> None:
        if chunks and chunks[-1][1] > offset:
            chunks = cut_chunks(chunks, offset)
        self.offset, self.chunks, self.layout = offset, chunks, layout

    def pending(self) -> list[mx.array]:
        """Arrays that the logits don't depend on, so that they stay a lazy graph until they are evaluated."""
        arrays = []
        for cache in self.caches:
            if (kind := kind_of(cache)).lazy:
                arrays += kind.buffers(cache)
        return arrays

    def shared_ms(self, ms: float) -> float:
        """A time by which something is decided, the same in all processes that compute the model."""
        return ms

    def state(self) -> list[mx.array]:
        """All arrays of all caches, to evaluate after a chunk of prefill."""
        arrays: list[mx.array] = []
        for cache in self.caches:
            arrays += kind_of(cache).buffers(cache)
        return arrays

    # ---- back ---------------------------------------------------------------------------------

    def rewind(self, offset: int) -> str:
        """Hold fewer tokens: trim where every cache can, else start over.

        Args:
            offset: Tokens to hold, at most the present offset.

        Returns:
            Why the caches had to be emptied, so that the caller must recompute; empty where they were trimmed.
        """
        if offset == self.offset:
            return ""
        if why := self.trim_refusal(offset):
            self.clear()
            return why
        self.trim(offset)
        return ""

    def trim(self, offset: int) -> None:
        """Hold fewer tokens, where `trim_refusal` has nothing against it."""
        for cache in self.caches:
            cache.trim(self.offset - offset)
        self._hold(offset, self.chunks, self.layout)

    def trim_refusal(self, offset: int) -> str:
        """Why the caches can't be trimmed to an offset; empty where they can."""
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
        """Hold `offset` tokens again after a forward that failed half-way and left layers unequal.

        Returns:
            Whether every cache could; otherwise they are unusable until they are cleared.
        """
        self._hold(offset, self.chunks, self.layout)
        return all(kind_of(cache).recover(cache, offset) for cache in self.caches)

    def could_trim(self, offset: int, to: int) -> bool:
        """True if every cache could be trimmed to `to` tokens once it holds `offset`."""
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
        """True if one more token can be added before it is known, and taken back, with no copy of an array."""
        following = self.offset + 1
        return self.quantized_at(self.offset) == self.quantized_at(following) and all(
            kind_of(cache).goes_ahead(cache, following) for cache in self.caches
        )

    def undo_records(self) -> tuple[Snapshot, ...] | None:
        """One record a cache to undo the next single token, for where trimming can't; None where not all have one."""
        undo_records = [kind_of(cache).record_undo(cache) for cache in self.caches]
        records = tuple(record for record in undo_records if record is not None)
        mx.eval([array for record in records for array in record.copies])
        return records if len(records) == len(undo_records) else None

    def undo(self, steps: Sequence[Sequence[Snapshot]]) -> None:
        """Remove single tokens from the end.

        Args:
            steps: Their records from `undo_records`, the last token's first.
        """
        for records in steps:
            for cache, record in zip(self.caches, records, strict=True):
                kind_of(cache).undo(cache, record)
        mx.eval(self.state())
        self._hold(self.offset - len(steps), self.chunks, self.layout)

    # ---- segments -----------------------------------------------------------------------------

    def without_snapshots(self) -> tuple[CacheKind, str] | None:
        """Kind and class name of the first cache without support for snapshots and several rows; None where all have
        it."""
        found = ((kind_of(cache), cache) for cache in self.caches)
        without = ((kind.name, type(cache).__name__) for kind, cache in found if not kind.can_snapshot(cache))
        return next(without, None)

    def partial_restore(self) -> bool:
        """True if a part of a snapshot can be restored; otherwise only all of it."""
        return all(kind_of(cache).partial_restore for cache in self.caches)

    def snapshot(self, start: int, end: int | None = None) -> tuple[Snapshot, ...]:
        """Save the tokens from `start` to `end`, or all, cache by cache; the copies are not evaluated."""
        end = self.offset if end is None else end
        return tuple(kind_of(cache).snapshot(cache, start, end) for cache in self.caches)

    def restore(self, saved: Sequence[Snapshot], at: int, end: int) -> int:
        """Restore a snapshot behind the first `at` tokens, up to `end`; the caller sets the offset.

        Returns:
            Bytes that were restored.
        """
        self._write(at, end)
        pairs = zip(self.caches, saved, strict=True)
        nbytes = sum(kind_of(cache).restore(cache, snapshot, at, end) for cache, snapshot in pairs)
        mx.eval(self.state())
        return nbytes

    # ---- what stays in the arrays -------------------------------------------------------------
    # Trimming moves the end of a plain cache and leaves its arrays as they are. So a branch that is left costs nothing
    # until another one is written over it, and only as much as that writes; who returns before has it at once.

    def stays(self) -> bool:
        """Tell whether tokens that are trimmed stay in the arrays until others are written over them."""
        return self._settings.kv_bits is None and all(kind_of(cache).stays for cache in self.caches)

    def take_back(self, behind: Behind, end: int) -> None:
        """Hold tokens up to `end` of a branch again, which begin where the caches end or before."""
        for cache in self.caches:
            kind_of(cache).take_back(cache, end)
        self.set_offset(end, chunks=behind.chunks, layout=behind.layout)

    def save_behind(self) -> None:
        """Have all branches saved that are in the arrays, which are about to go."""
        self._write(0, max((each.end for each in self.behind), default=0))

    def _write(self, begin: int, end: int) -> None:
        """Have what is in the columns saved that are about to be written, and some more of it."""
        left = []
        for each in self.behind:
            first = max(each.begin, begin)  # what is before that the caches hold
            if first < min(end, each.end):
                last = min(each.end, max(end, first + PIECE))
                self.save(each, first, last)
                first = last
            if first < each.end:
                left.append(replace(each, begin=first))
        self.behind = left

    # ---- what is known of it ------------------------------------------------------------------

    def reading(self, kept: int = 0, budget: int = 0) -> KVReading:
        """Read every cache; those that read the same are one group.

        Args:
            kept: Bytes of branches that are kept outside the caches.
            budget: Bytes that those may take.
        """
        used, allocated, groups = _grouped(tuple(self.readings()))
        return KVReading(self.offset, used, allocated, groups, kept, budget, *self.last_pass)

    def readings(self) -> Iterable[Reading]:
        """The figures of each cache."""
        for cache in self.caches:
            yield kind_of(cache).read(cache)

    def kinds(self) -> tuple[CacheKind, ...]:
        """The kind of each cache."""
        return tuple(kind_of(cache).name for cache in self.caches)

    def quantizable(self) -> tuple[tuple[CacheKind, bool], ...]:
        """The kind of each cache, and if mlx_lm can quantize it."""
        return tuple((kind.name, kind.quantizable) for kind in map(kind_of, self.caches))

    def quantized(self) -> tuple[bool, ...]:
        """Which caches hold packed numbers now."""
        return tuple([kind_of(cache).quantized for cache in self.caches])

    @property
    def rounded(self) -> bool:
        """True if what it holds is rounded: a cache holds packed numbers, or mlx_lm would have quantized it by now."""
        for cache in self.caches:
            if kind_of(cache).quantized:
                return True
        return self._settings.kv_bits is not None and self.offset >= self._settings.quantized_kv_start

    def quantized_at(self, offset: int) -> bool:
        """True if mlx_lm would have quantized the plain caches by the time they hold `offset` tokens."""
        return self._settings.kv_bits is not None and offset >= self._settings.quantized_kv_start

    @property
    def chunks_matter(self) -> bool:
        """True if the numbers depend on how the tokens were cut into chunks.

        mlx_lm quantizes after a chunk, so its tokens saw each other unquantized; and in a window that keeps its first
        tokens those of a chunk don't see these, while single tokens do. Everywhere else chunks only change the order of
        sums.
        """
        for cache in self.caches:
            if getattr(cache, "keep", 0):
                return True
        return self._settings.kv_bits is not None

    def bytes_per_token(self) -> int | None:
        """Bytes that one more token adds to caches that have held some; None where no kind grows with the text."""
        return sum(kind_of(cache).bytes_per_token(cache) for cache in self.caches) or None


def _save_nothing(behind: Behind, begin: int, end: int) -> None:
    """For a cache whose branches nobody keeps."""


@lru_cache(maxsize=8)
def _grouped(readings: tuple[Reading, ...]) -> tuple[int, int, tuple[KVGroup, ...]]:
    """Bytes that are used and allocated in all caches, and their groups; the same objects where caches read the same,
    as a full ring does, and a recurrent state, at every step.

    Args:
        readings: Of each cache, in the order of the model.
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
    """One tuple for equal ones: a long session has a reading for every step."""
    return layers
