"""The KV cache of one model: made, read, rewound and, where mlx_lm would, quantized.

`used` counts the bytes that hold tokens, `allocated` what the arrays take: a cache grows by blocks of 256 tokens,
and trimming moves its end without giving anything back. mlx_lm's own `size()` and `nbytes` tell neither for every
kind (a quantized cache says 0 tokens, and fails while it is empty), so both are read off the arrays here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx_lm.generate import maybe_quantize_kv_cache
from mlx_lm.models import cache as caches

from engine.cache.parts import Undo, flat, note
from engine.records import CacheKind, KVGroup, KVReading
from engine.settings import LoadSettings


def kind_of(cache: Any) -> CacheKind:
    """The kind of one of mlx_lm's cache objects."""
    kinds: tuple[tuple[type, CacheKind], ...] = (
        (caches.QuantizedKVCache, "quantized"),
        (caches.RotatingKVCache, "rotating"),
        (caches.KVCache, "plain"),
        (caches.ArraysCache, "recurrent"),
        (caches.ChunkedKVCache, "chunked"),
        (caches.CacheList, "list"),
    )
    return next((name for kind, name in kinds if isinstance(cache, kind)), "other")


def arrays(value: Any) -> Iterator[mx.array]:
    """The arrays in a cache's state, however nested."""
    if isinstance(value, mx.array):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from arrays(each)


def _buffers(cache: Any) -> list[mx.array]:
    """The arrays that a cache owns, unsliced (its `state` may hold views)."""
    if isinstance(cache, caches.CacheList):
        return [array for each in cache.caches for array in _buffers(each)]
    if isinstance(cache, caches.ArraysCache):
        return list(arrays(cache.cache))
    if hasattr(cache, "keys") and hasattr(cache, "values"):
        return [*arrays(cache.keys), *arrays(cache.values)]
    return list(arrays(cache.state))


def _held(cache: Any) -> int:
    """Tokens whose keys and values a cache holds."""
    if isinstance(cache, caches.RotatingKVCache):
        # A chunk of prefill leaves the ring longer than its window until the next single token.
        length = cache.keys.shape[2] if cache.keys is not None else 0
        return int(min(cache.offset, max(cache.max_size, length)))
    if isinstance(cache, caches.ChunkedKVCache):
        return int(cache.offset - cache.start_position)
    if isinstance(cache, caches.CacheList):
        return max((_held(each) for each in cache.caches), default=0)
    return 0 if isinstance(cache, caches.ArraysCache) else int(getattr(cache, "offset", 0))


def _used(cache: Any, held: int) -> int:
    """Bytes of a cache that hold tokens or state."""
    if isinstance(cache, caches.CacheList):
        return sum(_used(each, _held(each)) for each in cache.caches)
    buffers = _buffers(cache)
    if kind_of(cache) in ("recurrent", "other"):
        return sum(array.nbytes for array in buffers)
    return sum(
        array.nbytes // array.shape[2] * min(held, array.shape[2]) for array in buffers if array.shape[2]
    )


def _limit(cache: Any) -> int | None:
    if isinstance(cache, caches.RotatingKVCache):
        return int(cache.max_size)
    return int(cache.chunk_size) if isinstance(cache, caches.ChunkedKVCache) else None


def _group_key(cache: Any) -> tuple[CacheKind, int, int | None, int, int]:
    held = _held(cache)
    allocated = sum(array.nbytes for array in _buffers(cache))
    return kind_of(cache), held, _limit(cache), _used(cache, held), allocated


@dataclass(frozen=True, slots=True)
class Rewind:
    """How a cache came to stand at fewer tokens."""

    kept: int
    note: str = ""
    """Why nothing could be kept, when nothing could."""


class KV:
    """The live cache of one session.

    Args:
        model: The loaded model.
        settings: `max_kv_size`, `kv_bits`, `kv_group_size` and `quantized_kv_start` are used.
        offset: Tokens the caches hold; the one count that is true for every kind.
    """

    def __init__(self, model: Any, settings: LoadSettings) -> None:
        self._model = model
        self._settings = settings
        self._layouts = 0
        self.clear()

    def clear(self) -> None:
        """Begin anew, with empty caches."""
        self.caches: list[Any] = caches.make_prompt_cache(self._model, self._settings.max_kv_size)
        self.offset = 0
        self.cut = 0
        """Tokens at the beginning that went through in chunks; the rest came one by one."""
        self.layout = self._new_layout()
        self.passed = (0, 0)
        """Tokens and bytes of what was dropped last."""
        self._readings: dict[tuple[Any, ...], tuple[int, ...]] = {}

    def drop(self) -> None:
        """Begin anew after a pass that keeps nothing, and remember what it took."""
        passed = self.offset, sum(_used(cache, _held(cache)) for cache in self.caches)
        self.clear()
        self.passed = passed

    def advance(self, count: int, *, chunk: bool = False) -> None:
        """Account for `count` tokens that went through the model, and quantize as mlx_lm does."""
        self.offset += count
        if chunk:
            self.cut, self.layout = self.offset, self._new_layout()
        settings = self._settings
        if settings.kv_bits is None:
            return
        for index, cache in enumerate(self.caches):
            if isinstance(cache, caches.KVCache):
                one = [cache]
                maybe_quantize_kv_cache(
                    one, settings.quantized_kv_start, settings.kv_group_size, settings.kv_bits
                )
                self.caches[index] = one[0]

    def _new_layout(self) -> int:
        """A number for how tokens lie in the rings: a chunk or a new beginning lays them out anew."""
        self._layouts += 1
        return self._layouts

    def stands(self, offset: int, *, cut: int | None = None, layout: int | None = None) -> None:
        """Account for tokens that were put back or taken off cache by cache."""
        self.offset = offset
        self.cut = min(self.cut if cut is None else cut, offset)
        self.layout = self.layout if layout is None else layout

    def note(self) -> tuple[Undo, ...] | None:
        """What takes the next single token off again; None where trimming will do."""
        if self.can_step_back():
            return None
        undo = tuple(map(note, self.caches))
        mx.eval([array for each in undo for array in flat(each)])
        return undo

    def pending(self) -> list[mx.array]:
        """Arrays that the logits don't depend on and that would stay a lazy graph if nobody evaluated them."""
        return [array for cache in self.caches if _lazy(cache) for array in _buffers(cache)]

    def state(self) -> list[mx.array]:
        """All arrays of all caches, to evaluate after a chunk of prefill."""
        return [array for cache in self.caches for array in _buffers(cache)]

    def rewind(self, offset: int) -> Rewind:
        """Stand at fewer tokens: trim where every cache can, else begin anew.

        Args:
            offset: Tokens to stand at, at most the present offset.

        Returns:
            Tokens kept: `offset`, or 0 where the caches had to be emptied and the caller must recompute.
        """
        if offset == self.offset:
            return Rewind(offset)
        why = self.stuck(offset)
        if why:
            self.clear()
            return Rewind(0, why)
        for cache in self.caches:
            cache.trim(self.offset - offset)
        self.offset = offset
        self.cut = min(self.cut, offset)
        return Rewind(offset)

    def stuck(self, offset: int) -> str:
        """Why the caches can't be trimmed to an offset; empty where they can."""
        if offset == 0:
            return "nothing of it could be kept"
        for cache in self.caches:
            if not (hasattr(cache, "trim") and cache.is_trimmable()):
                return f"a {kind_of(cache)} cache can't be trimmed"
            if isinstance(cache, caches.ChunkedKVCache) and offset <= cache.start_position:
                return "a chunked cache has dropped its beginning"
        quantized = any(isinstance(cache, caches.QuantizedKVCache) for cache in self.caches)
        if quantized and offset < self._settings.quantized_kv_start:
            return "the cache was not quantized there"
        return ""

    def realign(self, offset: int) -> None:
        """Stand at `offset` again after a forward that failed half-way and left the layers apart, or begin anew."""
        self.offset = offset
        self.cut = min(self.cut, offset)
        for cache in self.caches:
            ahead = int(getattr(cache, "offset", 0)) - offset
            if kind_of(cache) not in ("plain", "quantized") or (ahead and cache.trim(ahead) != ahead):
                return self.clear()
        return None

    def reading(self, kept: int = 0, budget: int = 0) -> KVReading:
        """Read every cache; those that read the same are one group.

        Args:
            kept: Bytes of branches that are kept beside the caches.
            budget: What those may take.
        """
        groups: dict[tuple[Any, ...], list[int]] = {}
        for index, cache in enumerate(self.caches):
            groups.setdefault(_group_key(cache), []).append(index)
        read = tuple(KVGroup(key[0], self._shared(layers), *key[1:]) for key, layers in groups.items())
        used = sum(group.used_bytes * len(group.layers) for group in read)
        allocated = sum(group.allocated_bytes * len(group.layers) for group in read)
        return KVReading(self.offset, used, allocated, read, kept, budget, *self.passed)

    def _shared(self, layers: list[int]) -> tuple[int, ...]:
        """One tuple for equal lists: a long session has a reading for every step."""
        found = tuple(layers)
        return self._readings.setdefault(found, found)

    def quantized_at(self, offset: int) -> bool:
        """Whether mlx_lm would have quantized the plain caches by the time they hold so many tokens."""
        return self._settings.kv_bits is not None and offset >= self._settings.quantized_kv_start

    def can_step_back(self) -> bool:
        """Whether one more token could be taken off again by trimming."""
        return all(
            kind_of(cache) in ("plain", "quantized")
            or (isinstance(cache, caches.RotatingKVCache) and self.offset + 1 < cache.max_size)
            for cache in self.caches
        )

    @property
    def chunked_matters(self) -> bool:
        """Whether the numbers depend on how the tokens were cut into chunks.

        mlx_lm quantizes after a chunk, so its tokens saw each other unquantized; and in a window that keeps its
        first tokens a chunk's tokens don't see those, while single ones do. Everywhere else chunks only change the
        order of sums.
        """
        keeps = any(getattr(cache, "keep", 0) for cache in self.caches)
        return keeps or self._settings.kv_bits is not None

    def kinds(self) -> tuple[CacheKind, ...]:
        """The kind of each cache."""
        return tuple(kind_of(cache) for cache in self.caches)


def _lazy(cache: Any) -> bool:
    return kind_of(cache) in ("recurrent", "list", "other")


def bytes_per_token(cache_list: Sequence[Any]) -> int | None:
    """Bytes that one more token adds to caches that have held some; None where no kind grows with the text.

    For full attention this is `2 x KV heads x head size x bytes` a layer; it is read off the arrays, so that
    quantized caches and heads of different sizes for keys and values come out right too.
    """
    growing = [cache for cache in cache_list if kind_of(cache) in ("plain", "quantized", "chunked", "list")]
    found = sum(array.nbytes // array.shape[2] for cache in growing for array in _per_token(cache))
    return found or None


def _per_token(cache: Any) -> list[mx.array]:
    if isinstance(cache, caches.CacheList):
        inner = [each for each in cache.caches if kind_of(each) in ("plain", "quantized", "chunked")]
        return [array for each in inner for array in _buffers(each)]
    return [array for array in _buffers(cache) if array.ndim == 4 and array.shape[2]]
