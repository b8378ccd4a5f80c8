"""A value of every step of the path, updated as steps are appended rather than collected again each frame."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable

from engine.protocol import Step
from engine.timing import Tpot, summary
from inspector.state.timeline import Timeline


class Series:
    """Values of the steps of the current path.

    Args:
        value: What to keep of a step.
    """

    def __init__(self, value: Callable[[Step], float]) -> None:
        self.values: list[float] = []
        self._value = value
        self._generation = -1

    def update(self, timeline: Timeline) -> None:
        """Take in the steps that are new; all of them where the path was rebuilt."""
        known = len(self.values)
        if timeline.generation != self._generation or known > len(timeline.step_slots):
            self._generation, known = timeline.generation, 0
            self._clear()
        for slot in timeline.step_slots[known:]:
            item = timeline.items[slot]
            assert isinstance(item, Step)
            self._add(item)

    def _clear(self) -> None:
        self.values = []

    def _add(self, step: Step) -> None:
        self.values.append(self._value(step))


class StepMs(Series):
    """Milliseconds of the steps, in order of time; those that are no cold start in order of size, too."""

    def __init__(self) -> None:
        super().__init__(lambda step: step.ms.total)
        self._ordered: list[float] = []
        self._sum = 0.0

    def tpot(self) -> Tpot | None:
        """Time per output token, None where there is no step or a cold start alone."""
        return summary(self._ordered, self._sum) if self._ordered else None

    def _clear(self) -> None:
        super()._clear()
        self._ordered, self._sum = [], 0.0

    def _add(self, step: Step) -> None:
        super()._add(step)
        if not step.ms.cold:
            insort(self._ordered, step.ms.total)
            self._sum += step.ms.total


def step_shown(timeline: Timeline) -> int:
    """Which of the path's steps is shown, from 0; -1 where none is."""
    return -1 if timeline.step is None else timeline.steps_before(timeline.slot) - timeline.following
