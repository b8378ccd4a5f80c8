"""A recorded session that is gone on with."""

from __future__ import annotations

from dataclasses import dataclass

from engine.records.kv import KVReading, Memory
from engine.records.steps import Distribution


@dataclass(frozen=True, slots=True)
class Restoring:
    """How much of the path went through the model."""

    done: int
    total: int
    """Tokens."""


@dataclass(frozen=True, slots=True)
class Restored:
    """The tree of a recorded session is built again, and the cache stands at one of its nodes."""

    node: int
    tokens: int
    """Of the path to it."""
    logprobs: tuple[float, ...]
    """What the model gives the path's last tokens now, in its order: to be compared with what was recorded."""
    next: Distribution
    kv: KVReading
    memory: Memory
    ms: float
