"""The sampler as its formulas have it, over all tokens at every stage: what the faster one equals to the last bit."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import numpy.typing as npt

from engine.errors import StepError
from engine.protocol import StageReading
from engine.sampling.pipeline import Sampled
from engine.sampling.ranking import Row
from engine.sampling.stages import Context, Stage, Ties, pipeline
from engine.settings import Settings

CUT = np.float32(-np.inf)


def plain_log_softmax(logits: Row) -> Row:
    shifted = logits - logits.max()
    total = np.exp(shifted, dtype=np.float32).sum(dtype=np.float64)
    return np.asarray(shifted - np.float32(math.log(total)), np.float32)


def plain_top_p(row: Row, share: float, ties: Ties) -> Row:
    ordered = np.sort(row)
    probs = np.exp(np.subtract(ordered, ordered[-1], dtype=np.float64))
    above = np.concatenate([np.cumsum(probs[:0:-1])[::-1], np.zeros(1)])
    dropped = int((above >= share * (above[0] + probs[0])).sum())
    edge = ordered[dropped]
    if ties == "all":
        return np.where(row < edge, CUT, row)
    tied = np.flatnonzero(row == edge)
    room = row.size - dropped - int((row > edge).sum())
    kept = np.where(row > edge, row, CUT)
    last = tied[:room] if ties == "lowest" else tied[-room:]
    kept[last] = row[last]  # of 0 and -0 each its own
    return kept


def plain_invert(probs: npt.NDArray[np.float64], draw: float) -> tuple[int, float, float]:
    order = np.lexsort((np.arange(probs.size), -probs))
    sums = np.cumsum(probs[order])
    place = int(np.searchsorted(sums, draw, side="right"))
    place = min(place, int(np.flatnonzero(probs[order])[-1]))
    return int(order[place]), float(sums[place] - probs[order[place]]), float(sums[place])


class PlainRun:
    """One run of the stages over a row."""

    def __init__(self, logits: Row, logprobs: Row) -> None:
        self.row, self._own = logits, (logits, logprobs)
        self._logits, self._logprobs = logits, logprobs
        self.cut = np.full(logits.size, -1, np.int8)
        self.readings: list[StageReading] = []

    def apply(self, stage: Stage) -> None:
        before = self._logits if stage.changes_logits else self._logprobs
        if stage.kind == "order":
            kept = self._plain(stage)
            after = np.where(np.isneginf(kept), CUT, before)
        else:
            after = stage.run(before)
        self._note(stage.name, before, after)
        if stage.kind == "scale":
            self._logits = stage.run(self._logits)
        self._logits = after if stage.changes_logits else np.where(self.cut < 0, self._logits, CUT)
        self._logprobs = after if stage.kind in ("order", "shares") else plain_log_softmax(after)
        self.row = after

    def _plain(self, stage: Stage) -> Row:
        if stage.name != "top-p":
            return stage.run(self._logits)
        assert isinstance(stage.run, partial)
        return plain_top_p(self._logits, **stage.run.keywords)

    def _note(self, name: str, before: Row, after: Row) -> None:
        gone, removed = (after == CUT) & (before != CUT), 0.0
        if gone.any():
            self.cut[gone & (self.cut < 0)] = len(self.readings)
            if before is self._own[0]:
                removed = min(1.0, float(np.exp(self._own[1]) @ gone))
            else:
                weights = np.exp(before - before.max())
                removed = float(
                    np.where(gone, weights, 0).sum(dtype=np.float64) / weights.sum(dtype=np.float64)
                )
        if not (after != CUT).any():
            raise StepError(f"{name} cut all", "")
        self.readings.append(StageReading(name, int((after != CUT).sum()), removed))

    def ended(self, temp: float, draw: float) -> Sampled:
        probs = np.zeros(self.row.size, np.float64)
        if temp == 0:
            picked = int(self.row.argmax())
            after = np.full_like(self.row, CUT)
            after[picked] = self.row[picked]
            self._note("greedy", self.row, after)
            probs[picked] = 1.0
            drawn: tuple[float | None, ...] = (None, None, None)
        else:
            live = np.flatnonzero(self.row > CUT)
            weights = np.exp((self.row[live] - self.row.max()).astype(np.float64))
            probs[live] = weights / weights.sum()
            picked, start, end = plain_invert(probs, draw)
            drawn = draw, start, end
        names = tuple(reading.name for reading in self.readings)
        left = probs[self.row > CUT] if temp else probs[[picked]]
        return Sampled(probs, left, self.cut, names, tuple(self.readings), picked, *drawn)


def plain_sample(logits: Row, logprobs: Row, settings: Settings, draw: float) -> Sampled:
    run = PlainRun(logits, logprobs)
    for stage in pipeline(settings, Context()):
        run.apply(stage)
    return run.ended(settings.temp, draw)
