"""Attention heads over a whole path: the triangle of weights of one, and scores of all.

A path runs again from nothing for these, in chunks, on a cache of its own. Layers, heads and positions count from 0.
"""

from __future__ import annotations

from engine.frozen import frozen
from engine.records.answer import Answer
from engine.records.floats import Floats
from engine.records.inside.reading import CaptureFacts


@frozen
class TriangleRead(Answer):
    """Where one head looks from each token of a path."""

    node: int
    """The path's last token."""
    layer: int
    head: int
    tokens: int
    """Of the path."""
    weights: Floats
    """The rows of the tokens one after another, each as long as there are tokens up to its own: what comes later is
    hidden by the causal mask. Exactly 0 is what a window or a mask hides; what is too small for 16 bits is 6e-8."""
    sinks: Floats
    """The share of each row that the head's sink takes; of length 0 without sinks."""
    facts: CaptureFacts

    def row(self, position: int) -> tuple[float, ...]:
        """A token's weights over the tokens up to it; empty where there is no such token.

        Args:
            position: In the path, from 0.
        """
        if not 0 <= position < self.tokens:
            return ()
        return self.weights.stretch(position * (position + 1) // 2, position + 1)

    @property
    def nbytes(self) -> int:
        """Bytes of the weights."""
        return len(self.weights.packed)


@frozen
class HeadScore:
    """What one head did over a path, on average over the tokens that each score is about.

    The first three are shares of the attention, 0 to 1.
    """

    layer: int
    head: int
    previous: float
    """On the token right before, from each token but the first (a previous-token head: Elhage et al. 2021)."""
    induction: float | None
    """On the tokens that followed earlier occurrences of the same token, from each token that occurred before: the
    prefix matching score of Olsson et al. 2022, here over the text itself instead of a random text repeated. A token
    that repeats the one right before it doesn't count itself. None where no token of the path occurs again."""
    first: float
    """On the path's first token, from each token but the first (an attention sink: Xiao et al. 2023)."""
    entropy_bits: float
    """Entropy of the row, its sink's share as one more outcome: 3 bits are as wide as 8 tokens looked at equally."""


@frozen
class HeadsScored(Answer):
    """How much each head does what heads are known to do, over one path."""

    node: int
    """The path's last token."""
    tokens: int
    heads: tuple[HeadScore, ...]
    """By layer and head; without those whose keys' positions are not known."""
    repeats: int
    """Tokens whose id occurs earlier in the path, and was followed by another token than the one itself: those that
    the induction score is about."""
    facts: CaptureFacts
