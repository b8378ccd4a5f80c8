"""Sweeps: what a model's speed and memory depend on, measured point by point."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Literal

SweepName = Literal["ttft", "tpot", "batch", "inspection"]


@dataclass(frozen=True, slots=True)
class Figure:
    """One quantity, measured some times over."""

    name: str
    unit: Literal["ms", "tokens/s", "bytes", "times"]
    values: tuple[float, ...]
    """In the order in which they were taken; the warm-up is not among them."""

    @property
    def median(self) -> float:
        """The middle value."""
        return statistics.median(self.values)


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """What was measured at one place of a sweep."""

    sweep: SweepName
    at: int
    """Prompt tokens, tokens in the context, sequences of the batch, or steps."""
    figures: tuple[Figure, ...]


@dataclass(frozen=True, slots=True)
class Machine:
    """Where figures were taken, and with what."""

    system: str
    processor: str
    cores: int
    memory_bytes: int | None
    """None where the system doesn't tell."""
    python: str
    mlx: str
    mlx_lm: str
    backend: str


@dataclass(frozen=True, slots=True)
class Swept:
    """All sweeps that were asked for."""

    machine: Machine
    model: str
    family: str
    parameters: int
    dtype: str
    quantization: str | None
    rounds: int
    points: tuple[SweepPoint, ...]
    how: tuple[tuple[SweepName, str], ...]
    """How the figures of each sweep were taken."""
    notes: tuple[str, ...]
    """What could not be measured and why; empty where all was."""
    ms: float
