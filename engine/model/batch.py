"""Several continuations of one path through the model at once: caches of several rows, made from the live one.

Every cache of mlx_lm has its sequences along the first axis, so that indexing it gives a row to each sequence and
reorders beams; the cache kinds implement this. The live cache is read once and never written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

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
            self._runner.kv.adopt_rows(self._from, len(parents))
            self._from = None
        elif list(parents) != list(range(self._count)):
            self._runner.kv.reorder(parents, self._since if len(parents) == self._count else None)
        self._count = len(parents)
        return list(self._runner.forward_rows(tokens))


class SequentialRows:
    """One sequence after another, each with its own caches: for kinds of cache that this program doesn't know.

    Args:
        runner: Its live cache is read at the first forward.
        unsupported: Kind and class name of the first cache that can't have several rows.
    """

    def __init__(self, runner: Runner, unsupported: tuple[str, str]) -> None:
        kind, name = unsupported
        self.note = (
            f"A cache of kind {kind} ({name}) can't hold several sequences: they run one after another."
        )
        self._runners = [runner]

    def forward(self, parents: Sequence[int], tokens: Sequence[int]) -> list[Row]:
        """See `Rows`."""
        self._runners = [self._runners[parent].copy() for parent in parents]
        return [runner.forward(token) for runner, token in zip(self._runners, tokens, strict=True)]
