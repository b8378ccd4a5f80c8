"""The operations of a kind of KV cache. `Kind` itself is the general case: a cache class of mlx_lm that `KINDS` lacks.

A kind has no state of its own. Every operation takes one of mlx_lm's cache objects, the cache of one layer, so that
the model receives mlx_lm's own list of them.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import mlx.core as mx
from mlx_lm.generate import maybe_quantize_kv_cache
from msgspec import Struct

from engine.protocol import CacheKind
from engine.settings import LoadSettings

Array = mx.array
Reading = tuple[CacheKind, int, int | None, int, int]
"""Name, tokens held, limit, bytes used and bytes allocated of one cache."""


def arrays(value: Any) -> Iterator[Array]:
    """The arrays in a cache's state, however nested."""
    if isinstance(value, mx.array):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from arrays(item)


class Snapshot(Struct, frozen=True):
    """The saved state of one cache: some of its tokens, or what undoes one. Without arrays: trimming undoes it."""

    copies: tuple[Array, ...] = ()
    """Arrays of its own, to evaluate before the cache's buffers are written again.

    Each is a forced copy (`mx.array`): a slice that shares the buffer would make MLX copy all of it at the next write.
    """
    references: tuple[Array | None, ...] = ()
    """Arrays of the cache that are never written in place."""
    elsewhere: int = 0
    """Bytes that other processes keep alive for what they saved with it."""

    @property
    def nbytes(self) -> int:
        """Bytes that it keeps alive."""
        own = sum(array.nbytes for array in (*self.copies, *self.references) if array is not None)
        return own + self.elsewhere


class Kind:
    """The general case: it is read and, where mlx_lm allows it, trimmed; else it is recomputed, one row at a time.

    A subclass sets the attributes, and overrides the operations in which it differs.
    """

    name: CacheKind = "other"
    """As in the records."""
    cache_class: type = object
    """mlx_lm's class; its subclasses are of this kind, too, but without snapshots."""
    has_snapshots: bool = False
    """True if `snapshot`, `restore`, `repeat` and `reorder` know all that `cache_class` holds."""
    columns: bool = False
    """True if its buffers have shape (rows, heads, tokens, ...)."""
    grows: bool = False
    """True if each token adds such a column."""
    partial_restore: bool = False
    """True if `restore` can restore any part of a snapshot; otherwise only all of it."""
    stays: bool = False
    """True where columns that trimming removes stay in the arrays until those that follow are written over them."""
    quantized: bool = False
    """True if it holds packed numbers: trimmed below the start of quantization it would differ from a fresh cache."""
    quantizable: bool = False
    """True if mlx_lm can quantize it."""
    limit: str = ""
    """Attribute of the cache with the tokens that it can hold; none where it grows with the text."""
    lazy: bool = True
    """True if it may hold arrays that the logits don't depend on: unless a step evaluates them a graph piles up."""
    attended: bool = True
    """True if it holds tokens that attention reads."""

    def can_snapshot(self, cache: Any) -> bool:
        """True if a cache has snapshots and several rows; not a subclass's, which may hold more than is known here."""
        return self.has_snapshots and type(cache) is self.cache_class

    # ---- read -------------------------------------------------------------------------------

    def buffers(self, cache: Any) -> list[Array]:
        """The arrays that a cache owns, unsliced (its `state` may hold views)."""
        if hasattr(cache, "keys") and hasattr(cache, "values"):
            if type(cache.keys) is mx.array:  # as most are: every step reads every layer's
                return [cache.keys, cache.values]
            return [*arrays(cache.keys), *arrays(cache.values)]
        return list(arrays(cache.state))

    def held(self, cache: Any) -> int:
        """Tokens whose keys and values a cache holds."""
        return int(getattr(cache, "offset", 0))

    def key_positions(self, cache: Any, count: int) -> list[int] | None:
        """The position in the path of each of the `count` keys that a cache just returned; None where unknown."""
        return list(range(count)) if count == getattr(cache, "offset", None) else None

    def bytes_per_token(self, cache: Any) -> int:
        """Bytes that one more token adds to a cache that has held some; 0 where it doesn't grow with the text.

        For full attention this is `2 x KV heads x head size x bytes`; it is read off the arrays, so that quantized
        caches and heads of different sizes for keys and values come out right too.
        """
        growing = [one for one in self.buffers(cache) if self.grows and one.ndim == 4 and one.shape[2]]
        return sum(one.nbytes // one.shape[2] for one in growing)

    def read(self, cache: Any) -> Reading:
        """The figures of one cache for a record; see `KVGroup`."""
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
        """True if a cache can certainly be trimmed to fewer tokens once it has taken in `offset`."""
        return False

    def goes_ahead(self, cache: Any, offset: int) -> bool:
        """True if the token that makes it hold `offset` can certainly be removed, without a copy made before."""
        return self.trims_at(cache, offset)

    def trim_refusal(self, cache: Any, offset: int) -> str:
        """Why a cache can't be trimmed to `offset` tokens now; empty where it can."""
        if not (hasattr(cache, "trim") and cache.is_trimmable()):
            return f"a {self.name} cache can't be trimmed"
        if type(self) is Kind and not _trims(cache, offset):
            return f"the trim of {type(cache).__name__} leaves its arrays as they were"
        return ""

    def recover(self, cache: Any, offset: int) -> bool:
        """Go back to `offset` tokens after a forward that failed half-way; False where its writes are not known."""
        return False

    def quantize(self, cache: Any, settings: LoadSettings) -> Any:
        """The cache to use from here on: where mlx_lm would quantize it now, a quantized one."""
        layers = [cache]
        if self.quantizable:
            maybe_quantize_kv_cache(
                layers, settings.quantized_kv_start, settings.kv_group_size, settings.kv_bits
            )
        return layers[0]

    # ---- snapshot and undo ------------------------------------------------------------------

    def snapshot(self, cache: Any, start: int, end: int) -> Snapshot:
        """Save the tokens from `start` to `end` of a cache that holds `end`; only where `can_snapshot`."""
        raise NotImplementedError(f"no snapshot of a {self.name} cache can be taken")

    def restore(self, cache: Any, saved: Any, at: int, end: int) -> int:
        """Restore a snapshot into a cache that holds another branch of the same tree.

        Args:
            cache: The cache to write.
            saved: From `snapshot`; it stays valid.
            at: Tokens that stay in the cache: no fewer than the snapshot's start.
            end: Tokens to hold afterwards; without `partial_restore`, as many as at the snapshot.

        Returns:
            Bytes that were restored.
        """
        raise NotImplementedError(f"no snapshot of a {self.name} cache can be restored")

    def take_back(self, cache: Any, end: int) -> None:
        """Hold tokens up to `end` again that trimming removed; only where they stay."""
        raise NotImplementedError(f"what is trimmed of a {self.name} cache is gone")

    def record_undo(self, cache: Any) -> Snapshot | None:
        """What `undo` needs to remove the next single token, None where it can't; called before its forward."""
        return None if Kind.trim_refusal(self, cache, 0) else Snapshot()

    def undo(self, cache: Any, record: Any) -> None:
        """Remove the last single token, by the record made before it."""
        cache.trim(1)

    # ---- several rows: only where `can_snapshot` --------------------------------------------

    def repeat(self, cache: Any, count: int) -> Any:
        """A new cache of `count` rows, copies of the only row of `cache`, which is not written."""
        repeated = copy.copy(cache)
        self.pick(repeated, mx.zeros(count, dtype=mx.int32))
        return repeated

    def pick(self, cache: Any, rows: Array) -> None:
        """Replace a cache's arrays by some of their rows; the old arrays are not written.

        Args:
            cache: Its arrays have their rows along the first axis.
            rows: int32 indices, shape (rows wanted,).
        """
        cache.keys, cache.values = pick_rows(cache.keys, rows), pick_rows(cache.values, rows)

    def reorder(self, cache: Any, rows: Array, since: int | None) -> list[Any]:
        """Continue with some of the rows.

        Args:
            cache: Of several rows.
            rows: int32, shape (rows wanted,): for each new row the present row that it continues.
            since: Tokens that all rows share; None where their number changes.

        Returns:
            The columns that `write_columns` still has to write, unevaluated: the buffers that they are read from may
            be written only once these, for all caches, are evaluated. Empty where the arrays were replaced.
        """
        self.pick(cache, rows)
        return []

    def write_columns(self, cache: Any, columns: list[Any], since: int | None) -> None:
        """Write the columns that `reorder` returned for the same `since`, once they are evaluated."""


def _trims(cache: Any, offset: int) -> bool:
    """True if the `trim` of an unknown class shortens its arrays, tried on a copy (which shares the arrays' memory).

    mlx_lm's `ConcatenateKVCache` lowers its count and keeps the columns, so that the next token attends to what was
    removed. Arrays that are no longer than the count before the trim must be so after it.
    """
    held = int(getattr(cache, "offset", 0))
    if held <= offset:
        return True
    trimmed = copy.deepcopy(cache)
    trimmed.trim(held - offset)
    longest = [
        max((one.shape[-2] for one in arrays(each.state) if one.ndim > 1), default=0)
        for each in (cache, trimmed)
    ]
    return longest[0] > held or longest[1] <= offset


def pick_rows(value: Any, rows: Array) -> Any:
    """Some rows of an array or of several arrays; None stays None."""
    if isinstance(value, list | tuple):
        return tuple(array[rows] for array in value)
    return None if value is None else value[rows]
