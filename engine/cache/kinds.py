"""mlx_lm's kinds of KV cache, their operations, and the type map that finds the kind of a cache object.

A kind is stateless. Every operation receives one of mlx_lm's cache objects, the cache of one layer, so that the model
gets mlx_lm's own list of caches. `Kind` itself is the fallback for cache classes that are not in `KINDS`. To add a
kind, write a subclass of `Kind` and add an instance to `_ALL`.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import mlx.core as mx
from mlx_lm.generate import maybe_quantize_kv_cache
from mlx_lm.models import cache as caches
from msgspec import Struct

from engine.protocol import CacheKind
from engine.settings import KV_GROUP_SIZES, LoadSettings

Array = mx.array
Reading = tuple[CacheKind, int, int | None, int, int]
"""Kind, number of cached tokens, token limit, bytes used and bytes allocated of one cache."""


def arrays(value: Any) -> Iterator[Array]:
    """The arrays in a cache's state, however nested."""
    if isinstance(value, mx.array):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from arrays(item)


class Snapshot(Struct, frozen=True):
    """Saved state of one cache: the KV of some tokens, or the data to undo one token. It has no arrays if trimming is
    enough to undo the token."""

    copies: tuple[Array, ...] = ()
    """Copied arrays, which must be evaluated before the cache's buffers are written again.

    Each is a forced copy (`mx.array`): a slice that shares the buffer would make MLX copy all of it at the next write.
    """
    references: tuple[Array | None, ...] = ()
    """Arrays of the cache that are never written in place, so that no copy is needed."""
    elsewhere: int = 0
    """Bytes that other processes keep in memory for this snapshot."""
    start: int = 0
    """Number of tokens (plain caches) before the first saved column. The copies have shape (1, heads, tokens, ...),
    keys first."""
    ring: tuple[int, int] | None = None
    """Offset of a rotating cache, and mlx_lm's next write position. The copies are keys and values of the complete
    ring or of one column."""
    column: int | None = None
    """Index of that column, which the next token overwrites; None for a complete ring."""
    parts: tuple[Snapshot, ...] = ()
    """Snapshots of the inner caches of a composite cache; this snapshot lists their arrays, too."""

    @property
    def nbytes(self) -> int:
        """Bytes that the snapshot keeps in memory."""
        own = sum(array.nbytes for array in (*self.copies, *self.references) if array is not None)
        return own + self.elsewhere


class Kind:
    """Fallback for unknown cache classes: they are read, trimmed if mlx_lm can trim them, otherwise recomputed; they
    have only one row.

    A subclass sets the attributes and overrides the operations that differ.
    """

    name: CacheKind = "other"
    """Name of the kind in the records."""
    cache_class: type = object
    """mlx_lm's class. Its subclasses count as this kind too, but can't be saved in snapshots."""
    has_snapshots: bool = False
    """True if `snapshot`, `restore`, `repeat` and `reorder` cover the complete state of `cache_class`."""
    columns: bool = False
    """True if its buffers have shape (rows, heads, tokens, ...)."""
    grows: bool = False
    """True if each token adds one column to the buffers."""
    partial_restore: bool = False
    """True if `restore` can restore a part of a snapshot; False if only the complete snapshot."""
    stays: bool = False
    """True if trimmed columns remain in the arrays until new tokens overwrite them."""
    quantized: bool = False
    """True if it is quantized. Trimmed below `quantized_kv_start`, it would differ from a newly filled cache."""
    quantizable: bool = False
    limit: str = ""
    """Name of the cache's attribute with its maximum number of tokens; empty if it grows with the text."""
    lazy: bool = True
    """True if the cache may contain arrays that the logits don't depend on. Each step must evaluate them; otherwise
    their lazy graph grows with every step."""
    attended: bool = True
    """True if attention reads the cached tokens."""

    def can_snapshot(self, cache: Any) -> bool:
        """True if a cache supports snapshots and several rows. A subclass of `cache_class` doesn't: it may have state
        that is unknown here."""
        return self.has_snapshots and type(cache) is self.cache_class

    # ---- read -------------------------------------------------------------------------------

    def buffers(self, cache: Any) -> list[Array]:
        """The cache's own arrays, unsliced (its `state` may contain views)."""
        if hasattr(cache, "keys") and hasattr(cache, "values"):
            if type(cache.keys) is mx.array:  # the common case, fast because every step reads every layer
                return [cache.keys, cache.values]
            return [*arrays(cache.keys), *arrays(cache.values)]
        return list(arrays(cache.state))

    def held(self, cache: Any) -> int:
        """Number of tokens with keys and values in the cache."""
        return int(getattr(cache, "offset", 0))

    def key_positions(self, cache: Any, count: int) -> list[int] | None:
        """Position in the path of each of the `count` keys that a cache just returned; None if unknown."""
        return list(range(count)) if count == getattr(cache, "offset", None) else None

    def bytes_per_token(self, cache: Any) -> int:
        """Bytes that one more token adds to a cache that is not empty; 0 if it doesn't grow with the text.

        For full attention this is `2 x KV heads x head size x bytes`. It is computed from the arrays, so that it is
        also right for quantized caches, and for keys and values with different head sizes.
        """
        growing = [one for one in self.buffers(cache) if self.grows and one.ndim == 4 and one.shape[2]]
        return sum(one.nbytes // one.shape[2] for one in growing)

    def read(self, cache: Any) -> Reading:
        """Read the size of one cache for a record; see `KVGroup`."""
        held, used, allocated = self.held(cache), 0, 0
        for array in self.buffers(cache):
            nbytes, columns = array.nbytes, array.shape[2] if self.columns else 0
            allocated += nbytes
            if not self.columns:
                used += nbytes
            elif columns:
                used += nbytes // columns * min(held, columns)
        limit = int(getattr(cache, self.limit)) if self.limit else None
        return self.name, held, limit, used, allocated

    # ---- trim and quantize ------------------------------------------------------------------

    def trims_at(self, cache: Any, offset: int) -> bool:
        """True if a cache with `offset` tokens can always be trimmed."""
        return False

    def goes_ahead(self, cache: Any, offset: int) -> bool:
        """True if the token that brings the cache to `offset` tokens can always be removed again, without copying
        arrays beforehand."""
        return self.trims_at(cache, offset)

    def trim_refusal(self, cache: Any, offset: int) -> str:
        """Reason why a cache can't be trimmed to `offset` tokens now; empty if it can."""
        if not (hasattr(cache, "trim") and cache.is_trimmable()):
            return f"a {self.name} cache can't be trimmed"
        if type(self) is Kind and not _trims(cache, offset):
            return f"the trim of {type(cache).__name__} leaves its arrays as they were"
        return ""

    def recover(self, cache: Any, offset: int) -> bool:
        """Return to `offset` tokens after a failed forward pass; False if the cache's state is unknown."""
        return False

    def quantize(self, cache: Any, settings: LoadSettings) -> Any:
        """The cache to use from now on: a quantized one if mlx_lm would quantize it now."""
        layers = [cache]
        if self.quantizable:
            start, group, bits = settings.quantized_kv_start, settings.kv_group_size, settings.kv_bits
            maybe_quantize_kv_cache(layers, start, group, bits)
        return layers[0]

    # ---- snapshot and undo ------------------------------------------------------------------

    def snapshot(self, cache: Any, start: int, end: int) -> Snapshot:
        """Save the tokens from `start` to `end` of a cache with `end` tokens; requires `can_snapshot`."""
        raise NotImplementedError(f"no snapshot of a {self.name} cache can be taken")

    def restore(self, cache: Any, saved: Snapshot, at: int, end: int) -> int:
        """Restore a snapshot into a cache that contains another branch of the same tree.

        Args:
            cache: The cache to write.
            saved: A snapshot from `snapshot`; it stays valid.
            at: Number of tokens of the cache to keep: at least the snapshot's start.
            end: Number of tokens in the cache afterwards; without `partial_restore`, the same as when the snapshot was
                taken.

        Returns:
            Number of bytes restored.
        """
        raise NotImplementedError(f"no snapshot of a {self.name} cache can be restored")

    def take_back(self, cache: Any, end: int) -> None:
        """Extend the cache to `end` tokens with columns that trimming left in the arrays; requires `stays`."""
        raise NotImplementedError(f"what is trimmed of a {self.name} cache is gone")

    def record_undo(self, cache: Any) -> Snapshot | None:
        """Make the data for `undo` to remove the next single token, before its forward pass; None if it can't be
        removed."""
        return None if Kind.trim_refusal(self, cache, 0) else Snapshot()

    def undo(self, cache: Any, record: Snapshot) -> None:
        """Remove the last token with the record made before its forward pass."""
        cache.trim(1)

    # ---- several rows: only if `can_snapshot` -----------------------------------------------

    def repeat(self, cache: Any, count: int) -> Any:
        """A new cache of `count` rows, copies of the only row of `cache`, which is not modified."""
        repeated = copy.copy(cache)
        self.pick(repeated, mx.zeros(count, dtype=mx.int32))
        return repeated

    def pick(self, cache: Any, rows: Array) -> None:
        """Replace a cache's arrays by some of their rows; the old arrays are not modified.

        Args:
            cache: A cache with its rows along the first axis of the arrays.
            rows: Indices of the rows to keep, int32, shape (new rows,).
        """
        cache.keys, cache.values = pick_rows(cache.keys, rows), pick_rows(cache.values, rows)

    def reorder(self, cache: Any, rows: Array, since: int | None) -> list[Any]:
        """Continue with some of the rows.

        Args:
            cache: A cache of several rows.
            rows: For each new row, the index of the current row that it continues; int32, shape (new rows,).
            since: Number of tokens that all rows share; None if the number of rows changes.

        Returns:
            Columns that `write_columns` must write, lazy; empty if the arrays were replaced. Evaluate the columns of
            all caches before writing any, because they are computed from the buffers that will be overwritten.
        """
        self.pick(cache, rows)
        return []

    def write_columns(self, cache: Any, columns: list[Any], since: int | None) -> None:
        """Write the columns that `reorder` returned for the same `since`; they must be evaluated."""


def _trims(cache: Any, offset: int) -> bool:
    """True if the `trim` of an unknown class shortens its arrays. Tried on a copy, which shares the arrays' memory.

    mlx_lm's `ConcatenateKVCache` lowers its token count but keeps the columns, so that the next token would attend to
    the removed tokens. If the arrays were not longer than the token count before the trim, they must not be longer
    afterwards.
    """
    held = int(getattr(cache, "offset", 0))
    if held <= offset:
        return True
    trimmed = copy.deepcopy(cache)
    trimmed.trim(held - offset)
    before, after = (
        max((one.shape[-2] for one in arrays(each.state) if one.ndim > 1), default=0)
        for each in (cache, trimmed)
    )
    return before > held or after <= offset


def pick_rows(value: Any, rows: Array) -> Any:
    """Some rows of an array or of several arrays; None stays None."""
    if isinstance(value, list | tuple):
        return tuple(array[rows] for array in value)
    return None if value is None else value[rows]


# ---- plain: keys and values of all tokens -----------------------------------------------------


class Plain(Kind):
    """Plain KV cache: a snapshot copies the columns of some tokens; trimming moves the end and frees no memory."""

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

    def snapshot(self, cache: Any, start: int, end: int) -> Snapshot:
        copies = tuple(mx.array(buffer[..., start:end, :]) for buffer in self.buffers(cache))
        return Snapshot(copies, start=start)

    def restore(self, cache: Any, saved: Snapshot, at: int, end: int) -> int:
        """See `Kind`; `end` may be any number of tokens that the snapshot covers."""
        if cache.offset < at:  # there would be a gap, and wrong KV raises no error
            raise ValueError(f"a cache of {cache.offset} tokens can't continue from {at}")
        cache.trim(cache.offset - at)
        columns = [array[..., at - saved.start : end - saved.start, :] for array in saved.copies]
        self._append(cache, columns, at, end)
        return sum(column.nbytes for column in columns)

    def take_back(self, cache: Any, end: int) -> None:
        """See `Kind`; nothing may have been written over the columns since the trim."""
        cache.offset = end

    def _append(self, cache: Any, columns: Sequence[Array], at: int, end: int) -> None:
        """Append columns to a cache, which grows by mlx_lm's blocks."""
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
            sides = cache.keys, cache.values
            cache.keys, cache.values = (tuple(_grown(buffer, block) for buffer in side) for side in sides)
        for buffer, column in zip(self.buffers(cache), columns, strict=True):
            buffer[..., at:end, :] = column
        cache.offset = end


def _grown(buffer: Array, block: int) -> Array:
    """Extend a buffer of shape (1, heads, tokens, n) by room for `block` more tokens."""
    shape = (*buffer.shape[:2], block, *buffer.shape[3:])
    return mx.concatenate([buffer, mx.zeros(shape, buffer.dtype)], axis=2)


def valid_group_sizes(sizes: Collection[int]) -> list[int]:
    """The quantization group sizes of mlx_lm that divide all given head sizes."""
    return [group for group in KV_GROUP_SIZES if all(size % group == 0 for size in sizes)]


def group_size_problem(sizes: Collection[int], wanted: int) -> str:
    """Sentences on why heads can't be divided into groups of a size, and on what to use instead; empty if they can.

    Args:
        sizes: Head sizes of the keys and values.
        wanted: Group size: the number of values that share a scale.
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
        """See `Kind`. The keys are the tokens that the cache always keeps, then the ring, with the newest key right
        before the next write position."""
        offset, keep, index = int(cache.offset), int(cache.keep), int(cache._idx)
        if cache.keys is None or count != min(offset, cache.keys.shape[2]):
            return None
        if count == offset:
            return list(range(count))
        newest = [offset - index + slot for slot in range(keep, index)]
        oldest = [offset - (count - keep) + slot for slot in range(count - index)]
        return [*range(keep), *newest, *oldest]

    def trims_at(self, cache: Any, offset: int) -> bool:
        """See `Kind`; only until the window is full, after which each step overwrites a token."""
        return bool(offset < cache.max_size)

    def snapshot(self, cache: Any, start: int, end: int) -> Snapshot:
        """See `Kind`; always the complete ring, whatever `start` is."""
        copies = mx.array(cache.keys), mx.array(cache.values)
        return Snapshot(copies, ring=(cache.offset, cache._idx))

    def restore(self, cache: Any, saved: Snapshot, at: int, end: int) -> int:
        assert saved.ring is not None
        cache.keys, cache.values = map(mx.array, saved.copies)
        cache.offset, cache._idx = saved.ring
        return saved.nbytes

    def record_undo(self, cache: Any) -> Snapshot:
        length = 0 if cache.keys is None else cache.keys.shape[2]
        if length < cache.max_size or cache.offset < cache.max_size:
            return Snapshot()  # the window is not full yet: nothing is overwritten, and trimming is enough
        if length > cache.max_size:
            # A prefill chunk left the ring longer: the next token makes new arrays, and the old ones don't change.
            return Snapshot((cache.keys, cache.values), ring=(cache.offset, cache._idx))
        column = cache.keep if cache._idx == cache.max_size else cache._idx
        keys, values = (mx.array(side[..., column : column + 1, :]) for side in (cache.keys, cache.values))
        return Snapshot((keys, values), ring=(cache.offset, cache._idx), column=column)

    def undo(self, cache: Any, record: Snapshot) -> None:
        if record.ring is None:
            super().undo(cache, record)
            return
        keys, values = record.copies
        if record.column is None:
            cache.keys, cache.values = keys, values
        else:
            cache.keys[..., record.column : record.column + 1, :] = keys
            cache.values[..., record.column : record.column + 1, :] = values
        cache.offset, cache._idx = record.ring


# ---- recurrent: every token replaces the arrays, which are never written in place -------------


class Recurrent(Kind):
    """Recurrent state: snapshots and undo records are references to the arrays."""

    name = "recurrent"
    cache_class = caches.ArraysCache
    has_snapshots = True
    attended = False

    def buffers(self, cache: Any) -> list[Array]:
        return list(arrays(cache.cache))

    def held(self, cache: Any) -> int:
        """See `Kind`; always 0, because a state doesn't contain single tokens."""
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
    """Chunked KV cache: can be trimmed until its beginning is dropped; no snapshots."""

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


def _joined(parts: tuple[Snapshot, ...]) -> Snapshot:
    copies = tuple(array for part in parts for array in part.copies)
    return Snapshot(copies, tuple(array for part in parts for array in part.references), parts=parts)


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

    def snapshot(self, cache: Any, start: int, end: int) -> Snapshot:
        return _joined(tuple(kind.snapshot(inner, start, end) for kind, inner in self._inner(cache)))

    def restore(self, cache: Any, saved: Snapshot, at: int, end: int) -> int:
        pairs = zip(self._inner(cache), saved.parts, strict=True)
        return sum(kind.restore(inner, part, at, end) for (kind, inner), part in pairs)

    def goes_ahead(self, cache: Any, offset: int) -> bool:
        """See `Kind`; all inner caches must allow it."""
        return all(kind.goes_ahead(inner, offset) for kind, inner in self._inner(cache))

    def trim_refusal(self, cache: Any, offset: int) -> str:
        """See `Kind`; otherwise the first reason of an inner cache."""
        reasons = (kind.trim_refusal(inner, offset) for kind, inner in self._inner(cache))
        return super().trim_refusal(cache, offset) or next(filter(None, reasons), "")

    def record_undo(self, cache: Any) -> Snapshot | None:
        records = [kind.record_undo(inner) for kind, inner in self._inner(cache)]
        known = tuple(record for record in records if record is not None)
        return _joined(known) if len(known) == len(records) else None

    def undo(self, cache: Any, record: Snapshot) -> None:
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
"""The kind of all classes that are not in the map."""


def kind_of(cache: Any) -> Kind:
    """The kind of a cache object: the kind of its class, or else of the first class in the map that it is an instance
    of."""
    kind = KINDS.get(type(cache))
    return kind or next((KINDS[known] for known in KINDS if isinstance(cache, known)), GENERAL)


def kind_named(name: CacheKind) -> Kind:
    """The kind with a name from a record."""
    return next((kind for kind in KINDS.values() if kind.name == name), GENERAL)


_ALL: tuple[Kind, ...] = (Quantized(), Rotating(), Plain(), Recurrent(), Chunked(), Composite())
KINDS: dict[type, Kind] = {kind.cache_class: kind for kind in _ALL}
"""The type map, from mlx_lm's class to its kind."""
