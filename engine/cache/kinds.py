"""mlx_lm's kinds of KV cache, and the type map that finds the kind of a cache object.

To add a kind, write a subclass of `Kind` and add its line to `KINDS`.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from typing import Any

import mlx.core as mx
from mlx_lm.models import cache as caches

from engine.cache.kind import Array, Kind, Reading, Snapshot, arrays, pick_rows
from engine.protocol import CacheKind
from engine.settings import KV_GROUP_SIZES

# ---- plain: keys and values of all tokens -----------------------------------------------------


class Columns(Snapshot, frozen=True):
    """KV of some tokens: copies of shape (1, heads, tokens, ...), keys first."""

    start: int = 0


class Plain(Kind):
    """Plain KV cache: a snapshot copies some tokens' columns; trimming moves the end and frees no memory."""

    name: CacheKind = "plain"
    cache_class = caches.KVCache
    has_snapshots = columns = grows = partial_restore = stays = quantizable = True
    lazy = False

    def trims_at(self, cache: Any, offset: int) -> bool:
        return True

    def recover(self, cache: Any, offset: int) -> bool:
        """Trim the tokens that the failed forward pass added."""
        ahead = int(getattr(cache, "offset", 0)) - offset
        return not ahead or cache.trim(ahead) == ahead

    def snapshot(self, cache: Any, start: int, end: int) -> Columns:
        copies = tuple(mx.array(buffer[..., start:end, :]) for buffer in self.buffers(cache))
        return Columns(copies, start=start)

    def restore(self, cache: Any, saved: Columns, at: int, end: int) -> int:
        """See `Kind`; `end` may be any number of tokens that the snapshot covers."""
        if cache.offset < at:  # it would leave a gap, and wrong KV raises no error
            raise ValueError(f"a cache of {cache.offset} tokens can't continue from {at}")
        cache.trim(cache.offset - at)
        columns = [array[..., at - saved.start : end - saved.start, :] for array in saved.copies]
        self._append(cache, columns, at, end)
        return sum(column.nbytes for column in columns)

    def take_back(self, cache: Any, end: int) -> None:
        """See `Kind`; nothing may have been written over the columns since the trim."""
        cache.offset = end

    def _append(self, cache: Any, columns: Sequence[Array], at: int, end: int) -> None:
        """Write columns at the end of a cache, which grows by mlx_lm's blocks."""
        cache.update_and_fetch(*columns)

    def reorder(self, cache: Any, rows: Array, since: int | None) -> list[Any]:
        """See `Kind`; works in place from `since` on, so that the columns that all rows share are not copied."""
        if since is None:
            return super().reorder(cache, rows, since)
        return [buffer[..., since : cache.offset, :][rows] for buffer in self.buffers(cache)]

    def write_columns(self, cache: Any, columns: list[Any], since: int | None) -> None:
        if columns:
            for buffer, column in zip(self.buffers(cache), columns, strict=True):
                buffer[..., since : cache.offset, :] = column


# ---- quantized: a plain cache with packed numbers, and a scale and a bias for each group of them ----


class Quantized(Plain):
    """Quantized KV cache: six buffers, the packed values, scales and biases of the keys, then of the values."""

    name = "quantized"
    cache_class = caches.QuantizedKVCache
    stays = quantizable = False
    quantized = True

    def _append(self, cache: Any, columns: Sequence[Array], at: int, end: int) -> None:
        """Write packed columns directly, because mlx_lm's own `update_and_fetch` would quantize them again."""
        missing = end - cache.keys[0].shape[2]
        if missing > 0:
            block = -(-missing // cache.step) * cache.step
            cache.keys, cache.values = (
                tuple(_grown(buffer, block) for buffer in side) for side in (cache.keys, cache.values)
            )
        for buffer, column in zip(self.buffers(cache), columns, strict=True):
            buffer[..., at:end, :] = column
        cache.offset = end


def _grown(buffer: Array, block: int) -> Array:
    """Return a buffer of shape (1, heads, tokens, n) with room for `block` more tokens."""
    shape = (*buffer.shape[:2], block, *buffer.shape[3:])
    return mx.concatenate([buffer, mx.zeros(shape, buffer.dtype)], axis=2)


def valid_group_sizes(sizes: Collection[int]) -> list[int]:
    """mlx-lm's quantization group sizes that divide all the given head sizes."""
    return [group for group in KV_GROUP_SIZES if all(size % group == 0 for size in sizes)]


def group_size_problem(sizes: Collection[int], wanted: int) -> str:
    """Explain why heads can't be divided into groups of a size, and which size to use instead; empty if they can.

    Args:
        sizes: Head sizes of the keys and values.
        wanted: Group size: numbers that share a scale.
    """
    head_sizes = sorted(set(sizes))
    group_sizes = valid_group_sizes(head_sizes)
    if wanted in group_sizes:
        return ""
    heads = f"The heads of this model have {' and '.join(map(str, head_sizes))} numbers"
    if group_sizes:
        return f"{heads}, which can't be cut into groups of {wanted}. Use --kv-group-size {group_sizes[-1]}."
    names = ", ".join(map(str, KV_GROUP_SIZES))
    return f"{heads}, which can't be cut into groups of {names}: mlx-lm can't quantize them."


# ---- rotating: a ring of the last tokens; a new token overwrites the oldest column ----------


class Ring(Snapshot, frozen=True):
    """Keys and values of the complete ring, or of the column that the next token overwrites."""

    offset: int = 0
    index: int = 0
    """mlx_lm's next write position."""
    column: int | None = None
    """Index of the saved column; None for a complete ring."""


class Rotating(Kind):
    """Rotating KV cache: a snapshot is the complete ring; undoing a token restores the overwritten column."""

    name = "rotating"
    cache_class = caches.RotatingKVCache
    has_snapshots = columns = True
    lazy = False
    limit = "max_size"

    def held(self, cache: Any) -> int:
        """See `Kind`; a prefill chunk leaves the ring longer than its window until the next single token."""
        length = cache.keys.shape[2] if cache.keys is not None else 0
        return int(min(cache.offset, max(cache.max_size, length)))

    def key_positions(self, cache: Any, count: int) -> list[int] | None:
        """See `Kind`; first the tokens that the cache always keeps, then the ring, with the newest key just before
        the next write position."""
        offset, keep, index = int(cache.offset), int(cache.keep), int(cache._idx)
        if cache.keys is None or count != min(offset, cache.keys.shape[2]):
            return None
        if count == offset:
            return list(range(count))
        newest = [offset - index + slot for slot in range(keep, index)]
        oldest = [offset - (count - keep) + slot for slot in range(count - index)]
        return [*range(keep), *newest, *oldest]

    def trims_at(self, cache: Any, offset: int) -> bool:
        """See `Kind`; only until the window is full: from then on each step overwrites a token."""
        return bool(offset < cache.max_size)

    def snapshot(self, cache: Any, start: int, end: int) -> Ring:
        """See `Kind`; always the complete ring, whatever `start` is."""
        copies = mx.array(cache.keys), mx.array(cache.values)
        return Ring(copies, offset=cache.offset, index=cache._idx)

    def restore(self, cache: Any, saved: Ring, at: int, end: int) -> int:
        cache.keys, cache.values = map(mx.array, saved.copies)
        cache.offset, cache._idx = saved.offset, saved.index
        return saved.nbytes

    def record_undo(self, cache: Any) -> Snapshot:
        length = 0 if cache.keys is None else cache.keys.shape[2]
        if length < cache.max_size or cache.offset < cache.max_size:
            return Snapshot()  # the window is not full yet: nothing is overwritten, and trimming is enough
        if length > cache.max_size:
            # A prefill chunk left the ring longer: the next token makes new arrays, and the old ones don't change.
            return Ring((cache.keys, cache.values), offset=cache.offset, index=cache._idx)
        column = cache.keep if cache._idx == cache.max_size else cache._idx
        keys, values = (mx.array(side[..., column : column + 1, :]) for side in (cache.keys, cache.values))
        return Ring((keys, values), offset=cache.offset, index=cache._idx, column=column)

    def undo(self, cache: Any, record: Snapshot) -> None:
        if not isinstance(record, Ring):
            super().undo(cache, record)
            return
        keys, values = record.copies
        if record.column is None:
            cache.keys, cache.values = keys, values
        else:
            cache.keys[..., record.column : record.column + 1, :] = keys
            cache.values[..., record.column : record.column + 1, :] = values
        cache.offset, cache._idx = record.offset, record.index


# ---- recurrent: every token replaces the arrays and never writes them in place --------


class Recurrent(Kind):
    """Recurrent state: snapshots and undo records are references to the arrays."""

    name = "recurrent"
    cache_class = caches.ArraysCache
    has_snapshots = True
    attended = False

    def buffers(self, cache: Any) -> list[Array]:
        return list(arrays(cache.cache))

    def held(self, cache: Any) -> int:
        """See `Kind`; always 0, because a state contains no tokens."""
        return 0

    def snapshot(self, cache: Any, start: int, end: int) -> Snapshot:
        return Snapshot(references=tuple(cache.cache))

    def restore(self, cache: Any, saved: Snapshot, at: int, end: int) -> int:
        cache.cache = list(saved.references)
        return saved.nbytes

    def goes_ahead(self, cache: Any, offset: int) -> bool:
        """See `Kind`; an undo record refers to the arrays before the token, without copying them."""
        return self.can_snapshot(cache)

    def record_undo(self, cache: Any) -> Snapshot:
        return self.snapshot(cache, 0, 0)

    def undo(self, cache: Any, record: Snapshot) -> None:
        self.restore(cache, record, 0, 0)

    def pick(self, cache: Any, rows: Array) -> None:
        cache.cache = [pick_rows(array, rows) for array in cache.cache]


# ---- chunked (Llama 4): new columns at the end, old ones dropped at the beginning ------------


class Chunked(Kind):
    """Chunked KV cache: trimmable as long as its beginning was not dropped; no snapshots."""

    name = "chunked"
    cache_class = caches.ChunkedKVCache
    columns = grows = True
    lazy = False
    limit = "chunk_size"

    def held(self, cache: Any) -> int:
        return int(cache.offset - cache.start_position)

    def key_positions(self, cache: Any, count: int) -> list[int] | None:
        """See `Kind`; the dropped beginning is left out."""
        first = int(cache.start_position)
        return list(range(first, first + count)) if first + count == cache.offset else None

    def record_undo(self, cache: Any) -> None:
        """Always None: by the time of the undo, `trim` may stop at the dropped beginning without reporting it."""

    def trim_refusal(self, cache: Any, offset: int) -> str:
        """See `Kind`; the next token attends to its own chunk, so that chunk's first token must still be cached."""
        begin = min(cache.chunk_size * (offset // cache.chunk_size), offset - 1)
        dropped = "a chunked cache has dropped its beginning" if begin < cache.start_position else ""
        return super().trim_refusal(cache, offset) or dropped


# ---- caches made of caches, for layers that have both keys and values and a state --------------


class Parts(Snapshot, frozen=True):
    """Snapshots of the inner caches."""

    parts: tuple[Snapshot, ...] = ()


def _parts(parts: tuple[Snapshot, ...]) -> Parts:
    copies = tuple(array for part in parts for array in part.copies)
    return Parts(copies, tuple(array for part in parts for array in part.references), parts=parts)


class Composite(Kind):
    """Cache made of inner caches; every operation is passed to each of them."""

    name = "list"
    cache_class = caches.CacheList

    def _inner(self, cache: Any) -> list[tuple[Kind, Any]]:
        return [(kind_of(inner), inner) for inner in cache.caches]

    def can_snapshot(self, cache: Any) -> bool:
        """See `Kind`; True if all inner caches support snapshots."""
        return all(kind.can_snapshot(inner) for kind, inner in self._inner(cache))

    def buffers(self, cache: Any) -> list[Array]:
        return [array for kind, inner in self._inner(cache) for array in kind.buffers(inner)]

    def held(self, cache: Any) -> int:
        """See `Kind`; the maximum over the inner caches."""
        return max((kind.held(inner) for kind, inner in self._inner(cache)), default=0)

    def read(self, cache: Any) -> Reading:
        """See `Kind`; with the bytes of all inner caches."""
        name, held, limit, _, allocated = super().read(cache)
        used = sum(kind.read(inner)[3] for kind, inner in self._inner(cache))
        return name, held, limit, used, allocated

    def bytes_per_token(self, cache: Any) -> int:
        return sum(kind.bytes_per_token(inner) for kind, inner in self._inner(cache))

    def snapshot(self, cache: Any, start: int, end: int) -> Parts:
        return _parts(tuple(kind.snapshot(inner, start, end) for kind, inner in self._inner(cache)))

    def restore(self, cache: Any, saved: Parts, at: int, end: int) -> int:
        pairs = zip(self._inner(cache), saved.parts, strict=True)
        return sum(kind.restore(inner, part, at, end) for (kind, inner), part in pairs)

    def goes_ahead(self, cache: Any, offset: int) -> bool:
        """See `Kind`; True if it is for all inner caches."""
        return all(kind.goes_ahead(inner, offset) for kind, inner in self._inner(cache))

    def trim_refusal(self, cache: Any, offset: int) -> str:
        """See `Kind`; the first inner cache's reason."""
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
        """See `Kind`; one list of columns for each inner cache."""
        return [kind.reorder(inner, rows, since) for kind, inner in self._inner(cache)]

    def write_columns(self, cache: Any, columns: list[Any], since: int | None) -> None:
        for (kind, inner), part in zip(self._inner(cache), columns, strict=True):
            kind.write_columns(inner, part, since)


# ---- the type map -----------------------------------------------------------------------------


GENERAL = Kind()
"""The kind of all classes outside the map."""


def kind_of(cache: Any) -> Kind:
    """The kind of a cache object: that of its class, otherwise that of the first class in the map that it is an
    instance of."""
    kind = KINDS.get(type(cache))
    return kind or next((KINDS[known] for known in KINDS if isinstance(cache, known)), GENERAL)


def kind_named(name: CacheKind) -> Kind:
    """The kind with the name that a record gives."""
    return next((kind for kind in KINDS.values() if kind.name == name), GENERAL)


KINDS: dict[type, Kind] = {
    kind.cache_class: kind
    for kind in (
        Quantized(),
        Rotating(),
        Plain(),
        Recurrent(),
        Chunked(),
        Composite(),
    )
}
"""The type map: mlx_lm's class to its kind."""
