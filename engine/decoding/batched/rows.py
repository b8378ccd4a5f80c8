"""The rows of a batch: one forward for all lanes, where their caches allow it, or one lane after another."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from typing import Any, Protocol

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from msgspec import Struct

from engine.cache import padded
from engine.model.forward import CLEAR_EVERY, Rows, Runner, rows_of
from engine.patches.rotary import shared_rotary_factors
from engine.protocol import LaneKV
from engine.sampling.ranking import Row


class PromptChunk(Struct, frozen=True):
    """A chunk of some prompts went through the model."""

    done: int
    """Columns so far."""
    tokens: int
    padding: int
    """Row-steps that ran padding."""
    ms: float


Begin = Generator[PromptChunk, None, list[Row]]
"""A prefill; it returns the logits after each prompt, float32, shape (vocabulary,)."""


class LaneRows(Protocol):
    """The rows in which the lanes run. Each row is the path of one of them, in the order in which they began."""

    note: str
    """Why they go through the model one after another, if they do."""
    joins: bool
    """True if lanes can begin while others are live."""
    at_once: bool
    """True if one forward runs all rows: then a lane that ended costs as much as the others while it keeps its row."""

    def begin(self, prompts: Sequence[Sequence[int]]) -> Begin:
        """Read some prompts, whose rows follow those that are there."""

    def forward(self, tokens: Sequence[int]) -> Sequence[Row] | npt.NDArray[np.float32]:
        """Run the next token of every row; returns the logits after each, float32, shape (vocabulary,)."""

    def keep(self, places: Sequence[int]) -> None:
        """Keep some of the rows, in this order."""

    def read(self) -> list[LaneKV]:
        """What each row holds."""


class PaddedRows:
    """All rows in one forward of shape (rows, 1), over mlx_lm's caches of left-padded rows.

    Args:
        runner: Its model and settings are used; its cache is not.
    """

    note = ""
    joins = at_once = True

    def __init__(self, runner: Runner) -> None:
        self._runner = runner.fresh()
        self._caches: list[Any] = []
        self._lengths: list[int] = []
        self._forwards = 0

    def begin(self, prompts: Sequence[Sequence[int]]) -> Begin:
        """See `LaneRows`: padded to the longest, in chunks, the last column by itself, as alone."""
        lengths = [len(ids) for ids in prompts]
        columns = max(lengths)
        padding = [columns - length for length in lengths]
        made = padded.empty(self._runner.fresh().kv.caches, padding)
        wide = [[0] * left + list(ids) for left, ids in zip(padding, prompts, strict=True)]
        sizer, done = self._runner.chunk_sizer(), 0
        sizer.size = max(8, sizer.size // len(prompts))
        while done < columns - 1:
            begun, end = time.perf_counter(), min(done + sizer.size, columns - 1)
            self._logits(made, mx.array([ids[done:end] for ids in wide]))
            mx.eval(padded.state(made))
            mx.clear_cache()
            ms = (time.perf_counter() - begun) * 1000
            sizer.learn(end - done, ms)
            yield _chunk(done, end, padding, ms)
            done = end
        begun = time.perf_counter()
        found = self._run(made, [ids[-1] for ids in wide])
        padded.settle(made)
        if self._caches:
            padded.join(self._caches, made)
        else:
            self._caches = made
        self._lengths += lengths
        yield _chunk(done, columns, padding, (time.perf_counter() - begun) * 1000)
        return list(found)

    def forward(self, tokens: Sequence[int]) -> npt.NDArray[np.float32]:
        """See `LaneRows`; the array is that of the device."""
        found = self._run(self._caches, tokens)
        self._lengths = [length + 1 for length in self._lengths]
        return found

    def _run(self, over: list[Any], tokens: Sequence[int]) -> npt.NDArray[np.float32]:
        found = self._logits(over, mx.array([[token] for token in tokens]))[:, -1].astype(mx.float32)
        mx.eval(found, padded.pending(over))
        self._forwards += 1
        if self._forwards % CLEAR_EVERY == 0:
            mx.clear_cache()
        return np.array(found, copy=False)

    def _logits(self, over: list[Any], tokens: mx.array) -> mx.array:
        """The logits after some columns; all layers share the factors of their positions."""
        with shared_rotary_factors():
            logits: mx.array = self._runner.model(tokens, cache=over)
        padded.share_offsets(over)
        return logits

    def keep(self, places: Sequence[int]) -> None:
        """See `LaneRows`."""
        self._lengths = [self._lengths[place] for place in places]
        if places:
            padded.keep(self._caches, places)
        else:
            self._caches = []

    def read(self) -> list[LaneKV]:
        """See `LaneRows`."""
        return padded.read(self._caches, self._lengths)


def _chunk(done: int, end: int, padding: Sequence[int], ms: float) -> PromptChunk:
    """What the columns from `done` to `end` were."""
    empty = sum(max(0, min(end, left) - done) for left in padding)
    return PromptChunk(end, (end - done) * len(padding) - empty, empty, ms)


class SingleRows:
    """One lane after another, each over its own caches: as a single run does.

    Args:
        runner: Its model and settings are used; its cache is not.
        note: Why, for the records.
    """

    joins = True
    at_once = False

    def __init__(self, runner: Runner, note: str = "") -> None:
        self._runner, self.note = runner, note
        self._runners: list[Runner] = []

    def begin(self, prompts: Sequence[Sequence[int]]) -> Begin:
        """See `LaneRows`; the columns of one prompt after another."""
        found, before = [], 0
        for ids in prompts:
            runner = self._runner.fresh()
            sizer, last = runner.chunk_sizer(), len(ids) - 1
            while (done := runner.kv.offset) < last:
                begun, end = time.perf_counter(), min(done + sizer.size, last)
                runner.forward_chunk(ids[done:end])
                mx.clear_cache()
                ms = (time.perf_counter() - begun) * 1000
                sizer.learn(end - done, ms)
                yield PromptChunk(before + end, end - done, 0, ms)
            begun = time.perf_counter()
            found.append(runner.forward(ids[-1]))
            self._runners.append(runner)
            before += len(ids)
            yield PromptChunk(before, 1, 0, (time.perf_counter() - begun) * 1000)
        return found

    def forward(self, tokens: Sequence[int]) -> list[Row]:
        """See `LaneRows`."""
        return [runner.forward(token) for runner, token in zip(self._runners, tokens, strict=True)]

    def keep(self, places: Sequence[int]) -> None:
        """See `LaneRows`."""
        self._runners = [self._runners[place] for place in places]

    def read(self) -> list[LaneKV]:
        """See `LaneRows`."""
        readings = [runner.kv.reading() for runner in self._runners]
        return [LaneKV(each.offset, each.offset, each.used_bytes, 0) for each in readings]


class SharedRows:
    """Continuations of one path, whose KV is computed once and copied for the rows; they begin and grow together.

    Args:
        runner: Its cache holds the path; it is not written.
        row: The logits after the path, float32, shape (vocabulary,).
    """

    joins = False

    def __init__(self, runner: Runner, row: Row) -> None:
        self._runner, self._row = runner, row
        self._rows: Rows = rows_of(runner)
        self._places: list[int] = []
        self._each = runner.kv.reading().used_bytes, runner.kv.bytes_per_token() or 0
        self._grown = 0
        self.note = self._rows.note
        self.at_once = not self.note

    def begin(self, prompts: Sequence[Sequence[int]]) -> Begin:
        """See `LaneRows`; no forward: the path is there."""
        self._rows, self._grown = rows_of(self._runner), 0
        self._places = [0] * len(prompts)
        yield from ()
        return [self._row] * len(prompts)

    def forward(self, tokens: Sequence[int]) -> Sequence[Row]:
        """See `LaneRows`."""
        found = self._rows.forward(self._places, tokens)
        self._places, self._grown = list(range(len(tokens))), self._grown + 1
        return found

    def keep(self, places: Sequence[int]) -> None:
        """See `LaneRows`."""
        self._places = [self._places[place] for place in places]

    def read(self) -> list[LaneKV]:
        """See `LaneRows`; estimated from the path's own cache, which the rows repeat."""
        held, (path, token) = self._runner.kv.offset + self._grown, self._each
        return [LaneKV(held, held, path + self._grown * token, 0)] * len(self._places)
