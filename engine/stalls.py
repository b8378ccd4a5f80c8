"""What holds a step up and is no part of it: garbage collection, and the screen that is drawn in another thread.

Standard library alone, since the screen imports it. Both are added up for the process as a whole; a step takes the
difference between its end and its begin.
"""

from __future__ import annotations

import gc
import time
from types import TracebackType
from typing import NamedTuple


class StallTimes(NamedTuple):
    """Milliseconds so far in this process, since this module was imported."""

    collecting: float
    """In Python's garbage collector, which holds up all threads alike, whichever it was that it came in."""
    drawing: float
    """In drawing the screen, without collections in it. It shares the interpreter, and where they are few the cores."""

    def since(self, before: StallTimes) -> StallTimes:
        """What was added after another reading."""
        return StallTimes(self.collecting - before.collecting, self.drawing - before.drawing)


class _Clock:
    """Adds up spans, the one that is under way included. Read in another thread at any moment."""

    def __init__(self) -> None:
        self._now: tuple[float, float | None] = (0.0, None)
        """Seconds until the last span's end, and when the one under way began; replaced as one."""

    def begin(self) -> None:
        """A span begins."""
        self._now = (self._now[0], time.perf_counter())

    def end(self) -> None:
        """It ends; without a begin nothing does."""
        self._now = (self.ms / 1000, None)

    @property
    def under_way(self) -> bool:
        """Whether a span has begun and not ended."""
        return self._now[1] is not None

    @property
    def ms(self) -> float:
        """Milliseconds so far."""
        ended, begun = self._now
        return 1000 * (ended if begun is None else ended + time.perf_counter() - begun)


class _DrawingClock:
    """Says that the screen is drawn inside a `with` block; blocks inside it are part of it."""

    def __init__(self) -> None:
        self.clock = _Clock()
        self._depth = 0

    def __enter__(self) -> None:
        self._depth += 1
        if self._depth == 1:
            self.clock.begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.clock.end()


drawing = _DrawingClock()
"""To be entered in the screen's thread alone."""
_collecting, _both = _Clock(), _Clock()
"""`_both`: collections while the screen was being drawn, whichever thread they came in."""


def _collected(phase: str, info: dict[str, int]) -> None:
    """Called by Python itself before and after each collection, 0.2 us."""
    if phase == "start":
        _collecting.begin()
        if drawing.clock.under_way:
            _both.begin()
    else:
        _collecting.end()
        _both.end()


gc.callbacks.append(_collected)


def stall_times() -> StallTimes:
    """What garbage collection and drawing took so far."""
    return StallTimes(_collecting.ms, drawing.clock.ms - _both.ms)
