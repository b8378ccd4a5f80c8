"""Several continuations of one path through the model at once: caches of several rows, made from the live one.

Every cache of mlx_lm has its sequences along the first axis, so that indexing it gives a row to each sequence and
reorders beams; the cache kinds implement this. The live cache is read once and never written.
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
        """Continue some of the sequences, each of them any number of times.

        Args:
            parents: For each new sequence the index, in the previous call, of the one it continues; 0 the first time.
            tokens: Its next token (checked by the caller).

        Returns:
            The logits after each token, float32, shape (vocabulary,).
        """


def rows(runner: Runner) -> Rows:
    """Continuations of the path in a runner's live cache: batched where all its caches support several rows."""
    unsupported = runner.kv.without_snapshots()
    return BatchedRows(runner) if unsupported is None else SequentialRows(runner, unsupported)


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
        self._runner.compute = runner.compute
        self._count = 1

    def forward(self, parents: Sequence[int], tokens: Sequence[int]) -> list[Row]:
        """See `Rows`."""
        if self._from is not None:
            repeated = [kind_of(cache).repeat(cache, len(parents)) for cache in self._from.caches]
            _adopt_caches(self._runner.kv, self._from, repeated)
            self._from = None
        elif list(parents) != list(range(self._count)):
            self._reorder(parents)
        self._count = len(parents)
        return list(self._runner.forward_rows(tokens))

    def _reorder(self, parents: Sequence[int]) -> None:
        kv, since = self._runner.kv, self._since if len(parents) == self._count else None
        index = mx.array(list(parents))
        columns = [kind_of(cache).reorder(cache, index, since) for cache in kv.caches]
        mx.eval(columns, kv.state())  # before their source buffers are written
        for cache, copies in zip(kv.caches, columns, strict=True):
            kind_of(cache).write_columns(cache, copies, since)


class SequentialRows:
    """One sequence after another, each with its own caches: for kinds of cache that this program doesn't know.

    Args:
        runner: Its live cache is read at the first forward.
        unsupported: The first cache that can't have several rows.
    """

    def __init__(self, runner: Runner, unsupported: Any) -> None:
        kind, name = kind_of(unsupported).name, type(unsupported).__name__
        self.note = (
            f"A cache of kind {kind} ({name}) can't hold several sequences: they run one after another."
        )
        self._runners = [runner]

    def forward(self, parents: Sequence[int], tokens: Sequence[int]) -> list[Row]:
        """See `Rows`."""
        self._runners = [_fork(self._runners[parent]) for parent in parents]
        return [runner.forward(token) for runner, token in zip(self._runners, tokens, strict=True)]


def _fork(runner: Runner) -> Runner:
    """A runner whose caches hold what another's hold; MLX copies a shared array when one of them writes it."""
    fork = runner.fresh()
    fork.compute = runner.compute
    _adopt_caches(fork.kv, runner.kv, copy.deepcopy(runner.kv.caches))
    return fork


def _adopt_caches(kv: KV, like: KV, made: list[Any]) -> None:
    """Replace a cache's objects by copies of another cache's, and its counts by that cache's."""
    kv.caches = made
    kv.set_offset(like.offset, chunks=like.chunks)
