"""The sampler as its formulas have it, over all tokens at every stage: what the faster one equals to the last bit."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import numpy.typing as npt

from engine.errors import StepError
from engine.protocol import StageReading
from engine.sampling.pipeline import Sampled, Stage, StageContext, Ties, pipeline
from engine.sampling.ranking import Ids, Masses, Row
from engine.settings import Settings

CUT = np.float32(-np.inf)


def plain_log_softmax(logits: Row) -> Row:
    total = np.exp(np.subtract(logits, logits.max(), dtype=np.float64)).sum()
    return np.asarray(logits - logits.max() - np.float32(math.log(total)), np.float32)


def plain_top_p(row: Row, share: float, ties: Ties) -> Ids:
    ordered = np.sort(row)
    probs = np.exp(np.subtract(ordered, ordered[-1], dtype=np.float64))
    above = np.concatenate([np.cumsum(probs[:0:-1])[::-1], np.zeros(1)])
    dropped = int((above >= share * (above[0] + probs[0])).sum())
    edge = ordered[dropped]
    if ties == "all":
        return np.flatnonzero((row != CUT) & ~(row < edge))
    tied = np.flatnonzero(row == edge)
    room = row.size - dropped - int((row > edge).sum())
    return np.union1d(np.flatnonzero(row > edge), tied[:room] if ties == "lowest" else tied[-room:])


def plain_invert(probs: npt.NDArray[np.float64], draw: float) -> tuple[int, float, float]:
    order = np.lexsort((np.arange(probs.size), -probs))
    sums = np.cumsum(probs[order])
    place = int(np.searchsorted(sums, draw, side="right"))
    place = min(place, int(np.flatnonzero(probs[order])[-1]))
    return int(order[place]), float(sums[place] - probs[order[place]]), float(sums[place])


class PlainRun:
    """One run of the stages over a row."""

    def __init__(self, logits: Row, logprobs: Row) -> None:
        self.row, self._scaled = logits, False
        self._logits, self._logprobs = logits, logprobs
        self.cut = np.full(logits.size, -1, np.int8)
        self.readings: list[StageReading] = []

    def apply(self, stage: Stage) -> None:
        before = self._logits if stage.changes_logits else self._logprobs
        after = before if stage.kind in ("order", "shares") else stage.run(before)
        if stage.kind in ("order", "shares"):
            left = np.flatnonzero(before > CUT)
            kept = left[self._kept(stage, self._logits[left], before[left])]
            after = np.full_like(before, CUT)
            after[kept] = before[kept]
        self._note(stage.name, before, after)
        if stage.kind == "scale":
            scaled, self._scaled = stage.run(self._logits), True
            self._logits = scaled if np.isfinite(scaled.max()) else after  # beyond the largest float32
        self._logits = np.where(after > CUT, after if stage.changes_logits else self._logits, CUT)
        self._logprobs = after if stage.kind in ("order", "shares") else plain_log_softmax(after)
        self.row = after

    def _kept(self, stage: Stage, logits: Row, logprobs: Row) -> Ids:
        if stage.name != "top-p":
            return stage.run(Masses(logits) if stage.kind == "order" else logprobs)
        assert isinstance(stage.run, partial)
        return plain_top_p(logits, **stage.run.keywords)

    def _note(self, name: str, before: Row, after: Row) -> None:
        gone, removed = (after == CUT) & (before != CUT), 0.0
        if gone.any():
            self.cut[gone & (self.cut < 0)] = len(self.readings)
            logits = np.where(before > CUT, before if self._scaled else self._logits, CUT)
            weights = np.exp(np.subtract(logits, logits.max(), dtype=np.float64))
            removed = float(weights[gone].sum() / weights.sum())
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
        ids = np.flatnonzero(probs if temp == 0 else self.row > CUT)
        return Sampled(ids, probs[ids], self.cut, names, tuple(self.readings), picked, *drawn)


def plain_sample(logits: Row, logprobs: Row, settings: Settings, draw: float) -> Sampled:
    run = PlainRun(logits, logprobs)
    for stage in pipeline(settings, StageContext()):
        run.apply(stage)
    return run.ended(settings.temp, draw)
