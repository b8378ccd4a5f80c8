"""The commands that measure on separate caches."""

from __future__ import annotations

from typing import ClassVar

from engine.commands.command import Command
from engine.frozen import frozen
from engine.sweep_settings import SweepSettings


@frozen
class Sweep(Command):
    """Measure the model's speed and memory point by point; answered by `Measuring` records and one `Swept`."""

    over_ranks: ClassVar[bool] = False
    settings: SweepSettings


@frozen
class Measure(Command):
    """Base of measurements on separate caches; answered by `Measuring` records and those that the class names."""


@frozen
class Race(Measure):
    """Race with a KV cache and without one; answered by `RaceOpened`, `RaceStep` records and `RaceEnded`."""

    first: int = 16
    """Tokens of the sequence before the first step that is measured."""
    last: int = 128
    """Tokens after the last; at most the context window."""


@frozen
class Profile(Measure):
    """Measure the parts of the next step with fences; answered by one `Profiled`."""

    over_ranks: ClassVar[bool] = False
    repeats: int = 5
    """Counted rounds, after the warm-up."""


@frozen
class MeasureRoofline(Measure):
    """Compare prefill and decode with the machine's limits; answered by one `RooflineMeasured`."""

    over_ranks: ClassVar[bool] = False


@frozen
class CompareKV(Measure):
    """Compute the path with quantized KV caches; answered by `KVCompared` after each precision."""

    over_ranks: ClassVar[bool] = False
    bits: tuple[int, ...] = (8, 4)
    group_size: int | None = None
    """None for 64, or 32 where the heads are smaller."""


@frozen
class MeasureRanks(Measure):
    """What each rank holds, and its time in compute and communication; answered by one `RanksMeasured`.

    Refused where the model runs in this process alone.
    """

    rounds: int = 5
    """Counted rounds, after one that warms up."""
