"""Commands and records of attention: of a token, of all tokens with all, and of heads by what they attend to."""

from __future__ import annotations

from typing import Literal

from engine.frozen import frozen
from engine.protocol.base import Record
from engine.protocol.floats import Floats
from engine.protocol.inside import CaptureFacts, Look


@frozen
class ReadAttention(Look):
    """Where each head of each layer looks; answered by `AttentionRead`."""

    node: int
    """The token that looks; its distribution is the one after it."""


TRIANGLE_TOKENS = 2048
"""Tokens of a path whose triangle is read, at most: 4 MiB of weights of 16 bits."""


@frozen
class ReadTriangle(Look):
    """Where one head looks from each token of a path; answered by `Measuring` records and a `TriangleRead`."""

    node: int
    """The path's last token; the path has at most `TRIANGLE_TOKENS`."""
    layer: int
    """From 0."""
    head: int
    """From 0."""


@frozen
class ScoreHeads(Look):
    """How much each head does what heads are known to do; answered by `Measuring` records and a `HeadsScored`."""

    node: int
    """The path's last token."""


@frozen
class AttentionLayer:
    """The attention of one layer, a row of weights for each head."""

    layer: int
    kind: Literal["fused", "quantized", "softmax"]
    """`softmax`: the model's own attention, whose weights were read as it computed them."""
    kv_heads: int
    """Heads of keys and values; 0 where they are not known."""
    weights: Floats
    """Shape (heads, keys); the keys in the order of the path."""
    keep: int
    """The first keys are those of the path's first `keep` tokens, the others those of its last ones."""
    sinks: tuple[float, ...] = ()
    """What each head's sink takes, which no token has; empty without sinks."""

    @property
    def heads(self) -> int:
        """Number of heads."""
        return self.weights.shape[0] if len(self.weights.shape) == 2 else 0

    def over(self, head: int, tokens: int) -> tuple[float, ...]:
        """A head's weights over the whole path; those that it can't see are 0.

        Args:
            head: From 0.
            tokens: Of the path, this one included.
        """
        row = self.weights.row(head)
        gap = max(0, tokens - len(row))
        return (*row[: self.keep], *[0.0] * gap, *row[self.keep :])[:tokens]


@frozen
class AttentionRead(Record):
    """Where each head of each layer looked while one token went through the model."""

    node: int
    tokens: int
    """Of the path, this one included."""
    layers: tuple[AttentionLayer, ...]
    """Those that have an attention whose weights are known; more than once where they have several, or run again."""
    depth: int
    """Layers of the model."""
    missing: tuple[str, ...]
    """A sentence for each layer, or for all, that has no weights to show, with the reason."""
    facts: CaptureFacts

    @property
    def nbytes(self) -> int:
        """Bytes of all weights."""
        return sum(len(layer.weights.packed) for layer in self.layers)


@frozen
class TriangleRead(Record):
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
class HeadsScored(Record):
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
