"""Continuing a recorded session."""

from __future__ import annotations

from engine.frozen import frozen
from engine.records.kv import KVReading, Memory
from engine.records.steps import Distribution


@frozen
class Restoring:
    """How much of the path the model has run."""

    done: int
    total: int
    """Tokens."""


@frozen
class Restored:
    """The tree of a recorded session was rebuilt, and the cache holds the path to one of its nodes."""

    node: int
    tokens: int
    """Of the path to it."""
    logprobs: tuple[float, ...]
    """The model's logprobs of the path's last tokens now, in its order, to be compared with the recorded ones."""
    next: Distribution
    kv: KVReading
    memory: Memory
    ms: float
