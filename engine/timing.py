"""The four numbers that decide a deployment, from the milliseconds of steps. Standard library alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from engine.frozen import frozen


@frozen
class Tpot:
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
        """Whether it is the model's first since it was loaded."""


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
    late = [percentile(ordered, share) for share in (0.5, 0.95, 0.99)]
    return Tpot(len(ordered), total / len(ordered), *late)
