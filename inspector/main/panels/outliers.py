"""Steps that took far longer than the others, and why, where that is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine.frozen import frozen
from engine.protocol import Prefilled, Step
from inspector.scales import COLD, milliseconds, size
from inspector.state.timeline import Timeline

TIMES = 2.0
"""Of the median: a step that takes longer is an outlier."""
SHARE = 0.3
"""Of the time beyond the median: what took that much of it is named as the cause."""
PARTS = (("forward", "the model"), ("sample", "the sampler"), ("inspect", "what is shown"))


@frozen
class Outlier:
    """One slow step."""

    place: int
    """Among the steps of the path, from 0."""
    number: int
    """As the screen counts it, from 1."""
    ms: float
    times: float
    """Of the median."""
    cause: str


def outliers(timeline: Timeline, median: float) -> list[Outlier]:
    """The slow steps of the current path, in their order.

    Args:
        timeline: What is shown.
        median: Milliseconds of a step.
    """
    if median <= 0:
        return []
    edge, before = TIMES * median, _allocated(timeline)
    slow = []
    for place, step in enumerate(timeline.steps):
        if step.ms.total > edge:
            cause = _cause(step, before, median)
            slow.append(Outlier(place, step.index + 1, step.ms.total, step.ms.total / median, cause))
        before = step.kv.allocated_bytes
    return slow


def slowest(slow: Sequence[Outlier], most: int) -> list[Outlier]:
    """The worst of them, in their order."""
    worst = sorted(slow, key=lambda outlier: -outlier.ms)[:most]
    return sorted(worst, key=lambda outlier: outlier.place)


def _allocated(timeline: Timeline) -> int:
    """What the cache had allocated before the first step."""
    prefilled: Prefilled | None = timeline.prompts.prefilled
    return prefilled.kv.allocated_bytes if prefilled else 0


def _cause(step: Step, allocated: int, median: float) -> str:
    known = list(_known(step, allocated, median))
    return " and ".join(known) if known else f"cause not known; most of it in {_where(step)}"


def _known(step: Step, allocated: int, median: float) -> Iterator[str]:
    if step.ms.cold:
        yield f"{COLD}: the model's first step since it was loaded"
    if (grown := step.kv.allocated_bytes - allocated) > 0 and not step.kv.passed_tokens:
        yield f"the KV cache grew by {size(grown)}"
    beyond = SHARE * (step.ms.total - median)
    if step.ms.collecting > beyond:
        yield f"garbage collection, {milliseconds(step.ms.collecting)}"
    if step.ms.drawing > beyond:
        yield f"the screen was drawn beside it, {milliseconds(step.ms.drawing)}"


def _where(step: Step) -> str:
    return max(PARTS, key=lambda part: float(getattr(step.ms, part[0])))[1]
