"""Rows in which several sequences go through the model: all in one forward pass, or one sequence after another.

`PaddedRows` and `SequentialRows` read separate prompts; `BatchedRows` and `SequentialRows` continue one path. All have
the same members:

- `begin(prompts)` reads prompts, appends their rows, and yields a `PromptChunk` for each forward pass; rows that
  continue one path read nothing. `logits` are then those after each of these prompts, float32, shape (vocabulary,).
- `keep(places)` keeps rows by their places, in this order; rows that continue one path may be repeated.
- `forward(tokens)` runs the next token of every row (checked by the caller) and returns the logits after each.
- `read()` returns the KV of each row.
- `note` gives the reason if rows go through the model one after another. `at_once` is True if one forward pass runs
  all rows, so that a lane that ended costs as much as the others as long as it keeps its row. `joins` is True if
  prompts can begin while other rows are live.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import numpy as np

from engine.cache import padded
from engine.errors import StepError
from engine.model.forward import CLEAR_EVERY, Runner
from engine.patches.rotary import shared_rotary_factors
from engine.protocol import LaneKV
from engine.sampling import ranking
from engine.sampling.ranking import Row

PromptChunk = tuple[int, int, int, float]
"""A chunk of prompts that went through the model: columns so far, tokens, padded positions, and milliseconds."""


@contextmanager
def enough_memory(message: str, hint: str) -> Iterator[None]:
    """Turn a lack of memory into a `StepError` with this message."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, MemoryError) or "alloc" in str(error).lower():  # the wording of all backends
            raise StepError(message, hint) from error
        raise


class SequentialRows:
    """One sequence after another, each with its own cache.

    Args:
        runner: Runner whose cache contains the path that all sequences continue; not changed. If the cache is empty,
            the sequences are separate prompts.
        note: The reason, for the records.
        row: Logits after the path, needed by `begin`.
    """

    at_once = False

    def __init__(self, runner: Runner, note: str = "", row: Row | None = None) -> None:
        self._runner, self.note = runner, note
        self.joins = not runner.kv.offset
        self._runners = [] if self.joins else [runner.copy()]
        self.logits = [] if row is None else [row]

    def begin(self, prompts: Sequence[Sequence[int]]) -> Iterator[PromptChunk]:
        """Read prompts, one after another; see the module."""
        if not self.joins:
            self._runners = [self._runner.copy() for _ in prompts]
            self.logits = self.logits[:1] * len(prompts)
            return
        self.logits, before = [], 0
        for ids in prompts:
            runner = self._runner.fresh()
            sizer, last = runner.chunk_sizer(), len(ids) - 1
            while (done := runner.kv.offset) < last:
                begun, end = time.perf_counter(), min(done + sizer.size, last)
                runner.forward_chunk(ids[done:end])
                mx.clear_cache()
                ms = (time.perf_counter() - begun) * 1000
                sizer.learn(end - done, ms)
                yield before + end, end - done, 0, ms
            begun = time.perf_counter()
            self.logits.append(runner.forward(ids[-1]))
            self._runners.append(runner)
            before += len(ids)
            yield before, 1, 0, (time.perf_counter() - begun) * 1000

    def keep(self, places: Sequence[int]) -> None:
        """Keep some rows; see the module."""
        kept = [self._runners[place] for place in places]
        self._runners = kept if self.joins else [runner.copy() for runner in kept]

    def forward(self, tokens: Sequence[int]) -> list[Row]:
        """Run the next token of every row; see the module."""
        return [runner.forward(token) for runner, token in zip(self._runners, tokens, strict=True)]

    def read(self) -> list[LaneKV]:
        readings = [runner.kv.reading() for runner in self._runners]
        return [LaneKV(each.offset, each.offset, each.used_bytes, 0) for each in readings]


# ---- continuations of one path -----------------------------------------------------------------
# Every cache of mlx_lm has its sequences along the first axis, so that indexing it gives a row to each sequence and
# reorders beams; the cache kinds implement this.


def rows_of(runner: Runner, row: Row | None = None) -> BatchedRows | SequentialRows:
    """Continuations of the path in a runner's cache, batched if all its caches support several rows.

    Args:
        runner: Runner whose cache contains the path; not changed.
        row: Logits after the path, needed by `begin`.
    """
    if (unsupported := runner.kv.without_snapshots()) is None:
        return BatchedRows(runner, row)
    kind, name = unsupported
    note = f"A cache of kind {kind} ({name}) can't hold several sequences: they run one after another."
    return SequentialRows(runner, note, row)


class BatchedRows:
    """Continuations of one path in one forward pass; they begin together and have the same length.

    Args:
        runner: Runner whose cache contains the path; read at the first forward pass, and not changed.
        row: Logits after the path, needed by `begin`.
    """

    note = ""
    at_once = True
    joins = False

    def __init__(self, runner: Runner, row: Row | None = None) -> None:
        self._path = runner
        self.logits = [] if row is None else [row]
        self._start(1)

    def _start(self, count: int) -> None:
        self._runner = self._path.fresh()
        self._runner.compute = self._path.compute
        self._places, self._count = [0] * count, 0

    def begin(self, prompts: Sequence[Sequence[int]]) -> Iterable[PromptChunk]:
        """Begin one continuation per prompt; see the module."""
        self._start(len(prompts))
        self.logits, path = self.logits[:1] * len(prompts), self._path.kv
        self._bytes = path.reading().used_bytes, path.bytes_per_token() or 0
        return ()

    def keep(self, places: Sequence[int]) -> None:
        """Keep some rows from the next forward pass on; see the module."""
        self._places = [self._places[place] for place in places]

    def forward(self, tokens: Sequence[int]) -> ranking.Rows:
        """Run the next token of every row; see the module."""
        kv, count = self._runner.kv, len(tokens)
        if not self._count:
            kv.adopt_rows(self._path.kv, count)
            self._since = kv.offset
        elif self._places != list(range(self._count)):
            kv.reorder(self._places, self._since if count == self._count else None)
        self._places, self._count = list(range(count)), count
        return self._runner.forward_rows(tokens)

    def read(self) -> list[LaneKV]:
        """The KV of each row, estimated from the path's own cache, which the rows repeat."""
        (used, each), path = self._bytes, self._path.kv.offset
        tokens = self._runner.kv.offset if self._count else path
        return [LaneKV(tokens, tokens, used + (tokens - path) * each, 0)] * len(self._places)


# ---- prompts of different lengths --------------------------------------------------------------


class PaddedRows:
    """All rows in one forward pass of shape (rows, 1), over mlx_lm's caches of left-padded rows.

    Args:
        runner: Its model and settings are used; its cache is not.
    """

    note = ""
    at_once = joins = True

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self.caches: list[Any] = []
        """mlx_lm's caches, usually one per layer."""
        self.logits: Sequence[Row] = []
        self._lengths: list[int] = []
        self._forwards = 0

    def begin(self, prompts: Sequence[Sequence[int]]) -> Iterator[PromptChunk]:
        """Read prompts, padded to the longest, in chunks; the last column runs by itself. See the module."""
        lengths = [len(ids) for ids in prompts]
        columns = max(lengths)
        padding = [columns - length for length in lengths]
        wide = [[0] * left + list(ids) for left, ids in zip(padding, prompts, strict=True)]
        made = padded.empty(self._runner.fresh().kv.caches, padding)

        def chunk(begin: int, end: int, since: float) -> PromptChunk:
            empty = sum(max(0, min(end, left) - begin) for left in padding)
            tokens = (end - begin) * len(padding) - empty
            return end, tokens, empty, (time.perf_counter() - since) * 1000

        sizer, done = self._runner.chunk_sizer(), 0
        sizer.size = max(8, sizer.size // len(prompts))
        while done < columns - 1:
            begun, end = time.perf_counter(), min(done + sizer.size, columns - 1)
            self._compute(made, mx.array([ids[done:end] for ids in wide]))
            mx.eval(padded.state(made))
            mx.clear_cache()
            read = chunk(done, end, begun)
            sizer.learn(end - done, read[3])
            yield read
            done = end
        begun = time.perf_counter()
        self.logits = list(self._run(made, [ids[-1] for ids in wide]))
        for cache in made:
            cache.finalize()  # from here on every column is a token of its row
        if self.caches:
            for cache, other in zip(self.caches, made, strict=True):
                cache.extend(other)
            mx.eval(padded.state(self.caches))
        else:
            self.caches = made
        self._lengths += lengths
        yield chunk(done, columns, begun)

    def keep(self, places: Sequence[int]) -> None:
        """Keep some rows; see the module."""
        self._lengths = [self._lengths[place] for place in places]
        if not places:
            self.caches = []
        for cache in self.caches:
            cache.filter(mx.array(list(places)))
        mx.eval(padded.state(self.caches))

    def forward(self, tokens: Sequence[int]) -> ranking.Rows:
        """Run the next token of every row; see the module. The array shares its memory with MLX's."""
        found = self._run(self.caches, tokens)
        self._lengths = [length + 1 for length in self._lengths]
        return found

    def _run(self, over: list[Any], tokens: Sequence[int]) -> ranking.Rows:
        found = self._compute(over, mx.array([[token] for token in tokens]))[:, -1].astype(mx.float32)
        mx.eval(found, padded.pending(over))
        self._forwards += 1
        if self._forwards % CLEAR_EVERY == 0:
            mx.clear_cache()
        return np.array(found, copy=False)

    def _compute(self, over: list[Any], tokens: mx.array) -> mx.array:
        with shared_rotary_factors():
            logits: mx.array = self._runner.model(tokens, cache=over)
        padded.share_offsets(over)
        return logits

    def read(self) -> list[LaneKV]:
        return padded.read(self.caches, self._lengths)


Rows = PaddedRows | BatchedRows | SequentialRows
