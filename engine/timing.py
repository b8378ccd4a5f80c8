"""Times of steps: the four numbers that decide a deployment, and what delays a step. Standard library alone."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from msgspec import Struct


class Tpot(Struct, frozen=True):
    """Time per output token over some steps, in milliseconds, each step fenced."""

    steps: int
    mean: float
    p50: float
    p95: float
    p99: float = 0.0

    @property
    def tps(self) -> float:
        """Tokens a second, from the mean; 0 where there is no step."""
        return 1000 / self.mean if self.mean else 0.0


def percentile(ordered: Sequence[float], share: float) -> float:
    """The nearest-rank percentile: the smallest value that at least `share` of the values don't exceed.

    Args:
        ordered: Values in rising order, at least one.
        share: 0 to 1.
    """
    index = -(-len(ordered) * share // 1) - 1
    return ordered[max(0, min(len(ordered) - 1, int(index)))]


class Timed(Protocol):
    """The milliseconds of a step, as `StepTimes` has them."""

    @property
    def total(self) -> float:
        """All of it."""

    @property
    def cold(self) -> bool:
        """True if it is the model's first since it was loaded."""


def warm(steps: Iterable[Timed]) -> list[float]:
    """The total milliseconds of the steps that are no cold start: what rates and percentiles are made from."""
    return [ms.total for ms in steps if not ms.cold]


def tpot(ms: Sequence[float]) -> Tpot | None:
    """Summarise the total milliseconds of decode steps, None where there is none."""
    if not ms:
        return None
    ordered = sorted(ms)
    return summary(ordered, sum(ms))


def summary(ordered: Sequence[float], total: float) -> Tpot:
    """As `tpot`, from milliseconds that are ordered and added up already.

    Args:
        ordered: In rising order, at least one.
        total: Their sum.
    """
    middle, late, latest = percentile(ordered, 0.5), percentile(ordered, 0.95), percentile(ordered, 0.99)
    return Tpot(len(ordered), total / len(ordered), middle, late, latest)


# ---- garbage collection, and drawing the screen in another thread ------------------------------
# Standard library alone, since the screen imports it. Both times are sums for the process as a whole; a step takes the
# difference between its end and its begin.


class StallTimes(NamedTuple):
    """Milliseconds so far in this process, since this module was imported."""

    collecting: float
    """In Python's garbage collector, which delays all threads, in whichever thread it runs."""
    drawing: float
    """In drawing the screen, without collections in it. It shares the interpreter and, if few, the cores."""


NONE = StallTimes(0.0, 0.0)


class _Clock:
    """Adds up spans, the current one included: those of a `with` statement; one within another is a part of that one.

    Another thread may read it at any moment.
    """

    def __init__(self) -> None:
        self._depth = 0
        self.now: tuple[float, float | None] = (0.0, None)
        """Seconds of all ended spans, and when the current one began; replaced together, for other threads."""

    def begin(self) -> None:
        """Begin a span."""
        self._depth += 1
        if self._depth == 1:
            self.now = (self.now[0], time.perf_counter())

    def end(self, *raised: object) -> None:
        """End the span."""
        self._depth -= 1
        ended, begun = self.now
        if self._depth == 0 and begun is not None:
            self.now = (ended + time.perf_counter() - begun, None)

    __enter__, __exit__ = begin, end

    @property
    def ms(self) -> float:
        """Milliseconds so far."""
        ended, begun = self.now
        return 1000 * (ended if begun is None else ended + time.perf_counter() - begun)


drawing = _Clock()
"""Entered in the screen's thread alone."""
_collecting, _collecting_while_drawing = _Clock(), _Clock()
"""`_collecting_while_drawing`: collections during a drawing, in whichever thread they ran."""


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
    """The time that garbage collection and drawing took so far, or since an earlier reading."""
    drawn = drawing.ms - _collecting_while_drawing.ms
    return StallTimes(_collecting.ms - since.collecting, drawn - since.drawing)
