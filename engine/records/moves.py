"""Moves from node to node, and the verification of the cache's content."""

from __future__ import annotations

from engine.frozen import frozen
from engine.records.answer import Answer
from engine.records.inside.interventions import Intervention
from engine.records.kv import KVReading
from engine.records.steps import Distribution


@frozen
class Moved:
    """The session moved to another node of the tree, whose path the cache now holds; this was the cost."""

    node: int
    kept: int
    """Tokens that stayed in the cache."""
    restored: int
    """Tokens whose KV was restored from memory."""
    recomputed: int
    """Tokens that ran through the model again."""
    ms: float
    next: Distribution
    kv: KVReading
    note: str = ""
    """Why tokens were recomputed, empty if none were."""
    restored_bytes: int = 0
    """KV that was restored from memory."""


@frozen
class Verified(Answer):
    """The path was recomputed from nothing, and its logits compared with those of the live cache."""

    node: int
    tokens: int
    largest_difference: float
    """Of the logits, absolute."""
    same_order: bool
    """Whether the ten most probable tokens have the same order."""
    ms: float
    rounding: float = 0.0
    """The largest difference that rounding explains: the path may have run in other chunks."""
    interventions: tuple[Intervention, ...] = ()
    """Under which the end of the path was computed, and recomputed."""
