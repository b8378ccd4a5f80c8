"""Times of steps: statistics of the time per output token, and the delays of a step. Imports no MLX."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable, Sequence
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

if TYPE_CHECKING:
    from engine.protocol import StepTimes


class Tpot(Struct, frozen=True):
    """Time per output token over some steps, in milliseconds; each step ends with an evaluation."""

    steps: int
    mean: float
    p50: float
    p95: float
    p99: float = 0.0

    @property
    def tps(self) -> float:
        """Tokens per second, from the mean; 0 if there are no steps."""
        return 1000 / self.mean if self.mean else 0.0


def percentile(ordered: Sequence[float], share: float) -> float:
    """The nearest-rank percentile: the smallest value such that at least `share` of the values are not above it.

    Args:
        ordered: Values in ascending order, at least one.
        share: Fraction from 0 to 1.
    """
    return ordered[max(0, ceil(len(ordered) * share) - 1)]


def warm(steps: Iterable[StepTimes]) -> list[float]:
    """Total milliseconds of each step that isn't cold; rates and percentiles are computed from them."""
    return [ms.total for ms in steps if not ms.cold]


def tpot(ms: Sequence[float]) -> Tpot | None:
    """Statistics of the total milliseconds of decode steps; None if there are none."""
    return summary(sorted(ms), sum(ms)) if ms else None


def summary(ordered: Sequence[float], total: float) -> Tpot:
    """Compute `tpot` from milliseconds that are already sorted and summed.

    Args:
        ordered: Milliseconds in ascending order, at least one.
        total: Their sum.
    """
    middle, late, latest = percentile(ordered, 0.5), percentile(ordered, 0.95), percentile(ordered, 0.99)
    return Tpot(len(ordered), total / len(ordered), middle, late, latest)


# ---- garbage collection, and drawing the screen in another thread ------------------------------
# Both times are sums for the entire process; a step takes the difference between its end and its begin.


class StallTimes(NamedTuple):
    """Milliseconds in this process since this module was imported."""

    collecting: float
    """Time in Python's garbage collector, which delays all threads, whichever thread it runs in."""
    drawing: float
    """Time drawing the screen, without garbage collections. Drawing shares the interpreter with the steps."""


NONE = StallTimes(0.0, 0.0)


class _Clock:
    """Sums up the times of `with` blocks, including a block in progress; nested blocks count once.

    Other threads may read it at any moment.
    """

    def __init__(self) -> None:
        self._depth = 0
        self.now: tuple[float, float | None] = (0.0, None)
        """Seconds of all ended spans, and the begin of the current one; replaced together, for other threads."""

    def begin(self) -> None:
        self._depth += 1
        if self._depth == 1:
            self.now = (self.now[0], time.perf_counter())

    def end(self, *raised: object) -> None:
        self._depth -= 1
        ended, begun = self.now
        if self._depth == 0 and begun is not None:
            self.now = (ended + time.perf_counter() - begun, None)

    __enter__, __exit__ = begin, end

    @property
    def ms(self) -> float:
        """Milliseconds so far, including the current span."""
        ended, begun = self.now
        return 1000 * (ended if begun is None else ended + time.perf_counter() - begun)


drawing = _Clock()
"""Entered only by the screen's thread."""
_collecting, _collecting_while_drawing = _Clock(), _Clock()
"""`_collecting_while_drawing` counts collections during a drawing, whichever thread they run in."""


def _on_collection(phase: str, info: dict[str, int]) -> None:
    """Called by Python itself before and after each collection; takes 0.2 us."""
    if phase == "start":
        _collecting.begin()
        if drawing.now[1] is not None:
            _collecting_while_drawing.begin()
        return
    for clock in (_collecting, _collecting_while_drawing):
        if clock.now[1] is not None:
            clock.end()


gc.callbacks.append(_on_collection)


def stall_times(since: StallTimes = NONE) -> StallTimes:
    """Milliseconds of garbage collection and drawing so far, or since an earlier reading."""
    drawn = drawing.ms - _collecting_while_drawing.ms
    return StallTimes(_collecting.ms - since.collecting, drawn - since.drawing)
