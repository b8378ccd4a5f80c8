"""Going from node to node, and the proof that the cache holds what it should."""

from __future__ import annotations

from dataclasses import dataclass

from engine.records.kv import KVReading
from engine.records.steps import Distribution


@dataclass(frozen=True, slots=True)
class Moved:
    """The cache stands at another node of the tree; this was the bill."""

    node: int
    kept: int
    """Tokens that stayed in the cache."""
    restored: int
    """Tokens whose KV was put back from memory."""
    recomputed: int
    """Tokens that went through the model again."""
    ms: float
    next: Distribution
    kv: KVReading
    note: str = ""
    """Why tokens were recomputed, when they were."""
    restored_bytes: int = 0
    """KV that was put back from memory."""


@dataclass(frozen=True, slots=True)
class Verified:
    """The path was recomputed from nothing and set against what the live cache had given."""

    node: int
    tokens: int
    largest_difference: float
    """Of the logits, absolute."""
    same_order: bool
    """Whether the ten most probable tokens come in the same order."""
    ms: float
