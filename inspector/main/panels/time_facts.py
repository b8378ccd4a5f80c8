"""What there is to know of time and memory beyond the four numbers: slow steps, and who holds how much."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass

from engine.protocol import Memory, Step
from inspector.main.panels.outliers import TIMES, Outlier, slowest
from inspector.scales import count, milliseconds, size
from inspector.state.timeline import Timeline

Fact = tuple[str, str]
MOST = 3
"""Slow steps that are listed one by one."""


def slow_steps(slow: Sequence[Outlier], steps: int, most: int = MOST) -> Iterator[Fact]:
    """How many steps were slow, and the worst of them.

    Args:
        slow: The slow ones.
        steps: All of them.
        most: Slow steps that are listed one by one, at most.
    """
    if not steps:
        return
    edge = f"more than {TIMES:g} times the median"
    if not slow:
        yield "slow steps", f"none of {count(steps)} took {edge}"
        return
    yield "slow steps", f"{count(len(slow))} of {count(steps)} took {edge}{_followed(len(slow), most)}"
    for step in slowest(slow, most):
        yield f"  step {step.number}", f"{milliseconds(step.ms)}, {step.times:.1f} times: {step.cause}"


def _followed(slow: int, most: int) -> str:
    """The end of the sentence before the list of the slowest."""
    if not most:
        return ""
    if slow <= most:
        return ":"
    return f"; the {most} slowest:" if most > 1 else "; the slowest:"


def memory_facts(timeline: Timeline, memory: Memory | None, kept_bytes: int | None) -> Iterator[Fact]:
    """Who holds how much memory, and what bounds it.

    Args:
        timeline: What is shown.
        memory: As it was at the selected step.
        kept_bytes: What kept logits may take, None where it isn't known.
    """
    if memory is not None:
        ready = f" · {size(memory.cache_bytes)} kept ready" if memory.cache_bytes else ""
        yield (
            "framework",
            f"{size(memory.active_bytes)} in use{ready} · {size(memory.peak_bytes)} at its peak",
        )
        if memory.rss_bytes:
            most = " at most so far" if sys.platform == "darwin" else ""
            yield (
                "process",
                f"{size(memory.rss_bytes)} resident{most}, the program and its libraries included",
            )
    yield from _own(timeline, kept_bytes)


def _own(timeline: Timeline, kept_bytes: int | None) -> Iterator[Fact]:
    """What the inspector itself keeps."""
    steps = timeline.steps
    if not steps:
        return
    taken, per_step = (
        sum(isinstance(item, Step) for item in timeline.tree.nodes.values()),
        footprint(steps[-1]),
    )
    yield (
        "records",
        f"about {size(taken * per_step)}: {count(taken)} steps of {size(per_step)} each, none dropped",
    )
    if kept_bytes is not None and timeline.facts is not None:
        rows = min((taken + 1) * timeline.facts.vocabulary * 4, kept_bytes)
        yield "kept logits", f"about {size(rows)} of at most {size(kept_bytes)}; the oldest go first"


def footprint(step: Step) -> int:
    """Bytes of a step's record with all in it; what it was taken from is the step before's, and not counted."""
    return _sizes(step, skip="choice")


def _sizes(value: object, skip: str = "") -> int:
    total = sys.getsizeof(value)
    if is_dataclass(value):
        return total + sum(_sizes(getattr(value, f.name)) for f in fields(value) if f.name != skip)
    if isinstance(value, tuple):
        return total + sum(map(_sizes, value))
    return total
