"""Several continuations of one path through the model at once: caches of several rows, made from the live one.

Every cache of mlx_lm has its sequences along the first axis, so that a row each is got by indexing it, and beams are
reordered the same way; how, each kind of cache knows. The live cache is read once and never written.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Protocol

import mlx.core as mx

from engine.cache.kinds import kind_of
from engine.cache.live import KV
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
    unkeepable = runner.kv.unkeepable()
    return BatchedRows(runner) if unkeepable is None else SequentialRows(runner, unkeepable)


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
            repeated = [kind_of(cache).repeat(cache, len(parents)) for cache in self._from.caches]
            _put(self._runner.kv, self._from, repeated)
            self._from = None
        elif list(parents) != list(range(self._count)):
            self._reorder(parents)
        self._count = len(parents)
        return list(self._runner.rows(tokens))

    def _reorder(self, parents: Sequence[int]) -> None:
        kv, since = self._runner.kv, self._since if len(parents) == self._count else None
        index = mx.array(list(parents))
        columns = [kind_of(cache).reorder(cache, index, since) for cache in kv.caches]
        mx.eval(columns, kv.state())  # before the buffers that they are read from are written
        for cache, each in zip(kv.caches, columns, strict=True):
            kind_of(cache).write_columns(cache, each, since)


class SequentialRows:
    """One sequence after another, each with caches of its own: for caches of a kind that this program doesn't know.

    Args:
        runner: Its live cache is read at the first forward.
        unkeepable: The cache that can't have several rows.
    """

    def __init__(self, runner: Runner, unkeepable: Any) -> None:
        kind, name = kind_of(unkeepable).name, type(unkeepable).__name__
        self.note = (
            f"A cache of kind {kind} ({name}) can't hold several sequences: they run one after another."
        )
        self._each = [runner]

    def forward(self, parents: Sequence[int], tokens: Sequence[int]) -> list[Row]:
        """See `Rows`."""
        self._each = [_forked(self._each[parent]) for parent in parents]
        return [each.forward(token) for each, token in zip(self._each, tokens, strict=True)]


def _forked(runner: Runner) -> Runner:
    """A runner whose caches hold what another's do; MLX copies what they share once one of them writes it."""
    fork = runner.fresh()
    _put(fork.kv, runner.kv, copy.deepcopy(runner.kv.caches))
    return fork


def _put(kv: KV, like: KV, made: list[Any]) -> None:
    """Give a cache other cache objects, which hold what another's hold."""
    kv.caches = made
    kv.set_offset(like.offset, chunked_until=like.chunked_until)
