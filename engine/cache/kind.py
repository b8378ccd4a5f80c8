"""The operations on one kind of KV cache. `Kind` itself is the fallback for mlx_lm's cache classes that `KINDS`
lacks.

A kind has no state of its own. Every operation receives one of mlx_lm's cache objects, the cache of one layer, so
that the model gets mlx_lm's own list of them.
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
    """Bytes that other processes keep in memory for what they saved with it."""

    @property
    def nbytes(self) -> int:
        """Bytes that the snapshot keeps in memory."""
        own = sum(array.nbytes for array in (*self.copies, *self.references) if array is not None)
        return own + self.elsewhere


class Kind:
    """Fallback for unknown cache classes: read, trimmed if mlx_lm can trim it, otherwise recomputed; one row only.

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
    """True if it is quantized: trimmed below `quantized_kv_start`, it would differ from a newly filled cache."""
    quantizable: bool = False
    """True if mlx_lm can quantize it."""
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

        For full attention this is `2 x KV heads x head size x bytes`. It is computed from the arrays, so that
        quantized caches and keys and values with different head sizes come out right too.
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
        """True if a cache with `offset` tokens can certainly be trimmed."""
        return False

    def goes_ahead(self, cache: Any, offset: int) -> bool:
        """True if the token that brings the cache to `offset` tokens can certainly be removed again without a copy
        made before."""
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
            maybe_quantize_kv_cache(
                layers, settings.quantized_kv_start, settings.kv_group_size, settings.kv_bits
            )
        return layers[0]

    # ---- snapshot and undo ------------------------------------------------------------------

    def snapshot(self, cache: Any, start: int, end: int) -> Snapshot:
        """Save the tokens from `start` to `end` of a cache with `end` tokens; requires `can_snapshot`."""
        raise NotImplementedError(f"no snapshot of a {self.name} cache can be taken")

    def restore(self, cache: Any, saved: Any, at: int, end: int) -> int:
        """Restore a snapshot into a cache that contains another branch of the same tree.

        Args:
            cache: The cache to write.
            saved: A snapshot from `snapshot`; it stays valid.
            at: Tokens of the cache to keep: at least the snapshot's start.
            end: Tokens in the cache afterwards; without `partial_restore`, as many as when the snapshot was taken.

        Returns:
            Number of bytes restored.
        """
        raise NotImplementedError(f"no snapshot of a {self.name} cache can be restored")

    def take_back(self, cache: Any, end: int) -> None:
        """Extend the cache to `end` tokens with columns that trimming left in the arrays; requires `stays`."""
        raise NotImplementedError(f"what is trimmed of a {self.name} cache is gone")

    def record_undo(self, cache: Any) -> Snapshot | None:
        """Data for `undo` to remove the next single token, made before its forward pass; None if it can't be."""
        return None if Kind.trim_refusal(self, cache, 0) else Snapshot()

    def undo(self, cache: Any, record: Any) -> None:
        """Remove the last token with the record made before its forward pass."""
        cache.trim(1)

    # ---- several rows: only where `can_snapshot` --------------------------------------------

    def repeat(self, cache: Any, count: int) -> Any:
        """A new cache of `count` rows, copies of the only row of `cache`, which is not modified."""
        repeated = copy.copy(cache)
        self.pick(repeated, mx.zeros(count, dtype=mx.int32))
        return repeated

    def pick(self, cache: Any, rows: Array) -> None:
        """Replace a cache's arrays by some of their rows; the old arrays are not modified.

        Args:
            cache: A cache with its rows along the arrays' first axis.
            rows: int32 indices, shape (rows wanted,).
        """
        cache.keys, cache.values = pick_rows(cache.keys, rows), pick_rows(cache.values, rows)

    def reorder(self, cache: Any, rows: Array, since: int | None) -> list[Any]:
        """Continue with some of the rows.

        Args:
            cache: A cache of several rows.
            rows: int32, shape (rows wanted,): for each new row the index of the present row that it continues.
            since: Number of tokens that all rows share; None if the number of rows changes.

        Returns:
            Columns that `write_columns` must write, unevaluated. Evaluate those of all caches before writing to any
            buffer, because they read from these buffers. Empty if the arrays were replaced.
        """
        self.pick(cache, rows)
        return []

    def write_columns(self, cache: Any, columns: list[Any], since: int | None) -> None:
        """Write the columns that `reorder` returned for the same `since`; they must be evaluated."""


def _trims(cache: Any, offset: int) -> bool:
    """True if the `trim` of an unknown class shortens its arrays. Tried on a copy, which shares the arrays' memory.

    mlx_lm's `ConcatenateKVCache` lowers its token count but keeps the columns, so that the next token attends to the
    removed ones. If the arrays were no longer than the count before the trim, they must not be longer after it
    either.
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
