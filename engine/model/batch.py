"""Several continuations of one path through the model at once: caches of several rows, made from the live one.

Every cache of mlx_lm has its sequences along the first axis, so that a row each is got by indexing it, and beams are
reordered the same way. A plain or quantized cache is reordered in place from the end of the shared path on: what all
rows have in common is never copied again. The live cache is read once and never written.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import mlx.core as mx
from mlx_lm.models import cache as caches

from engine.cache.live import KV, kind_of
from engine.cache.parts import keepable
from engine.model.forward import Runner
from engine.sampling.ranking import Row


class Rows(Protocol):
    """Sequences of one length that began as one."""

    note: str
    """Why they go through the model one after another, if they do."""

    def forward(self, parents: Sequence[int], tokens: Sequence[int]) -> Sequence[Row]:
        """Go on with some of the sequences, each of them any number of times.

        Args:
            parents: Place of the sequence that each goes on from, as it was given the last time; 0 the first time.
            tokens: A token for each (checked by the caller).

        Returns:
            The float32 logits after each, shape (vocabulary,).
        """


def rows(runner: Runner) -> Rows:
    """Continuations of the path that a runner's live cache holds."""
    odd = [cache for cache in runner.kv.caches if not keepable(cache)]
    return SequentialRows(runner, odd[0]) if odd else BatchedRows(runner)


class BatchedRows:
    """All sequences in one forward.

    Args:
        runner: Its live cache is read at the first forward.
    """

    note = ""

    def __init__(self, runner: Runner) -> None:
        self._from: KV | None = runner.kv
        self._since = runner.kv.offset
        self._runner = runner.fresh()
        self._count = 1

    def forward(self, parents: Sequence[int], tokens: Sequence[int]) -> list[Row]:
        """See `Rows`."""
        if self._from is not None:
            _stand(self._runner.kv, self._from, [_repeated(each, len(parents)) for each in self._from.caches])
            self._from = None
        elif list(parents) != list(range(self._count)):
            self._reorder(parents)
        self._count = len(parents)
        return list(self._runner.rows(tokens))

    def _reorder(self, parents: Sequence[int]) -> None:
        index, resized = mx.array(list(parents)), len(parents) != self._count
        grown = [] if resized else [each for each in _leaves(self._runner.kv.caches) if _grows(each)]
        for cache in _leaves(self._runner.kv.caches):
            if cache not in grown:
                _pick(cache, index)
        ends = [[_end(array, self._since, each)[index] for array in _buffers(each)] for each in grown]
        mx.eval(ends, self._runner.kv.state())  # before the buffers that they are read from are written
        for cache, columns in zip(grown, ends, strict=True):
            for array, column in zip(_buffers(cache), columns, strict=True):
                array[..., self._since : cache.offset, :] = column


class SequentialRows:
    """One sequence after another, each with caches of its own: for caches of a kind that this program doesn't know.

    Args:
        runner: Its live cache is read at the first forward.
        odd: The cache that can't have several rows.
    """

    def __init__(self, runner: Runner, odd: Any) -> None:
        name = type(odd).__name__
        self.note = f"A cache of kind {kind_of(odd)} ({name}) can't hold several sequences: they run one after another."
        self._each = [runner]

    def forward(self, parents: Sequence[int], tokens: Sequence[int]) -> list[Row]:
        """See `Rows`."""
        self._each = [_forked(self._each[parent]) for parent in parents]
        return [each.forward(token) for each, token in zip(self._each, tokens, strict=True)]


def _forked(runner: Runner) -> Runner:
    """A runner that stands where another does; MLX copies what they share once one of them writes it."""
    found = runner.fresh()
    _stand(found.kv, runner.kv, copy.deepcopy(runner.kv.caches))
    return found


def _stand(kv: KV, like: KV, made: list[Any]) -> None:
    kv.caches = made
    kv.stands(like.offset, cut=like.cut)


# ---- one cache --------------------------------------------------------------------------------


def _leaves(made: Sequence[Any]) -> Iterator[Any]:
    for cache in made:
        if isinstance(cache, caches.CacheList):
            yield from _leaves(cache.caches)
        else:
            yield cache


def _repeated(cache: Any, count: int) -> Any:
    """A cache of so many rows, each of them the one row of a cache that is only read."""
    found = copy.copy(cache)
    if isinstance(cache, caches.CacheList):
        found.caches = tuple(_repeated(each, count) for each in cache.caches)
    else:
        _pick(found, mx.zeros(count, dtype=mx.int32))
    return found


def _pick(cache: Any, index: mx.array) -> None:
    """Replace a cache's arrays by some of their rows; the old arrays stay as they are."""
    if isinstance(cache, caches.ArraysCache):
        cache.cache = [_rows_of(array, index) for array in cache.cache]
    else:
        cache.keys, cache.values = _rows_of(cache.keys, index), _rows_of(cache.values, index)


def _rows_of(arrays: Any, index: mx.array) -> Any:
    if isinstance(arrays, list | tuple):
        return tuple(array[index] for array in arrays)
    return None if arrays is None else arrays[index]


def _grows(cache: Any) -> bool:
    """Whether a cache only ever adds columns at its end."""
    return kind_of(cache) in ("plain", "quantized")


def _buffers(cache: Any) -> list[mx.array]:
    both = (cache.keys, cache.values)
    return [array for each in both for array in (each if isinstance(each, list | tuple) else [each])]


def _end(array: mx.array, since: int, cache: Any) -> mx.array:
    return array[..., since : cache.offset, :]
