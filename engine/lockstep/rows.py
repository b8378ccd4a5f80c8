"""Rows of logits along a path, chunk by chunk: after each token the model's distribution of the next."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

import mlx.core as mx
import numpy as np

from engine.errors import Cancelled
from engine.model.forward import Runner, Stopped
from engine.sampling.ranking import Row
from engine.tree import Chunks, chunk_end, chunks_go_on

ROWS_BYTES = 2**26
"""Of the rows of a chunk at most: 64 MiB, 110 rows of a vocabulary of 150,000."""


class RowSource(Protocol):
    """Where the rows of one model along one path come from."""

    def after(self, place: int) -> Row:
        """The logits after a token of the path, float32, shape (vocabulary,); places are asked for in order."""


class ChunkedRows:
    """Runs a path in chunks as its rows are asked for.

    Args:
        runner: Its cache holds a beginning of the path; none of the rows before its end can be asked for.
        vocabulary: Values of a row, which bound the tokens of a chunk.
        ids: The whole path (checked by the caller: an id beyond the embedding ends the process).
        stopped: Polled before each chunk.
        like: Chunks that end where another path's ended, so that equal models give equal bits; None for chunks of
            about 100 ms.
        chunks: Which tokens run in chunks, where the cache's numbers depend on that; None for all.
    """

    def __init__(
        self,
        runner: Runner,
        vocabulary: int,
        ids: Sequence[int],
        stopped: Stopped,
        like: ChunkedRows | None = None,
        chunks: Chunks | None = None,
    ) -> None:
        self._chunks = chunks if runner.kv.chunks_matter else None
        if self._chunks is not None and not chunks_go_on(runner.kv.chunks, self._chunks, runner.kv.offset):
            runner.kv.clear()
        self._runner, self._ids, self._stopped = runner, ids, stopped
        self._like = like.ends if like is not None else None
        self._sizer = runner.chunk_sizer(max(8, ROWS_BYTES // (4 * vocabulary)))
        self.first = self._end = runner.kv.offset
        """Place of the first row that can be asked for."""
        self._rows = np.empty((0, 0), np.float32)
        self.ends: list[int] = []
        """Where its chunks ended."""
        self.ms = 0.0
        """Of its forwards, the logits of every token included."""

    def after(self, place: int) -> Row:
        """See `RowSource`.

        Raises:
            Cancelled: `stopped` returned True.
        """
        while place >= self._end:
            self._advance()
        row: Row = self._rows[place - self.first]
        return row

    def _advance(self) -> None:
        if self._stopped():
            raise Cancelled
        begun = time.perf_counter()
        end = min(self._end + self._sizer.size, len(self._ids))
        if self._like is not None:
            end = next((each for each in self._like if each > self._end), end)
        if self._chunks is not None:
            end = min(end, max(chunk_end(self._chunks, self._end), self._end + 1))
        ids = self._ids[self._end : end]
        self._rows = np.array(self._runner.forward_logits(ids))
        self.first, self._end = self._end, end
        self.ends.append(end)
        mx.clear_cache()
        ms = (time.perf_counter() - begun) * 1000
        self._sizer.learn(len(ids), ms)
        self.ms += ms
