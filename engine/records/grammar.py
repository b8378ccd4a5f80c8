"""What a grammar expects after a node."""

from __future__ import annotations

from engine.frozen import frozen
from engine.records.answer import Answer
from engine.records.steps import GrammarReading


@frozen
class ExpectedBeginning:
    """Tokens that a grammar allows and that begin alike."""

    words: str
    """What they begin with: `a digit`, `“-”`, `the end`."""
    tokens: int
    mass: float | None
    """Their probability together, by the model; None where the logits were dropped."""


@frozen
class GrammarExpected(Answer):
    """A grammar that can be used, and what it expects after a node."""

    node: int
    reading: GrammarReading | None
    """None before the grammar begins, and where the logits were dropped."""
    expected: tuple[ExpectedBeginning, ...]
    """Of the largest mass first; empty where all is allowed."""
