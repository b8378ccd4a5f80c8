"""Sweeps: what a model's speed and memory depend on, measured point by point."""

from __future__ import annotations

import statistics
from typing import Literal

from engine.frozen import frozen
from engine.records.answer import Answer

SweepName = Literal["ttft", "tpot", "batch", "inspection", "blas"]


@frozen
class Figure:
    """One quantity, measured some times over."""

    name: str
    unit: Literal["ms", "tokens/s", "bytes", "times"]
    values: tuple[float, ...]
    """In the order of measurement, without the warm-up."""

    @property
    def median(self) -> float:
        """The middle value."""
        return statistics.median(self.values)


@frozen
class SweepPoint:
    """The figures at one place of a sweep."""

    sweep: SweepName
    at: int
    """Prompt tokens, tokens in the context, sequences of the batch, steps, or the number of a way."""
    figures: tuple[Figure, ...]
    label: str = ""
    """Says what is at this place where a number doesn't."""


@frozen
class Machine:
    """The machine and the versions with which figures were measured."""

    system: str
    processor: str
    cores: int
    memory_bytes: int | None
    """None where the system doesn't report it."""
    python: str
    mlx: str
    mlx_lm: str
    backend: str
    blas: str = ""
    """What multiplies float32 matrices on a CPU; empty for what MLX brings."""


@frozen
class Swept(Answer):
    """The requested sweeps; emitted after each point of the rounds that count, with all results so far."""

    machine: Machine
    model: str
    family: str
    parameters: int
    dtype: str
    quantization: str | None
    rounds: int
    points: tuple[SweepPoint, ...]
    how: tuple[tuple[SweepName, str], ...]
    """How the figures of each sweep were measured."""
    notes: tuple[str, ...]
    """Sweeps that could not be measured, and why."""
    ms: float
    last: bool = True
    """False while more is measured: then some points are missing, and figures have fewer values than rounds."""
