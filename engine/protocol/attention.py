"""Commands and records of attention: of a token, of all tokens with all, and of heads by what they attend to."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from engine.protocol.base import Record
from engine.protocol.inside import CaptureFacts, Look
from engine.protocol.numbers import Count, Finite, Floats


class ReadAttention(Look, frozen=True):
    """Where each head of each layer looks; answered by `AttentionRead`."""

    node: Count
    """The token that looks; its distribution is the one after it."""


TRIANGLE_TOKENS = 2048
"""Tokens of a path whose triangle is read, at most: 4 MiB of weights of 16 bits."""


class ReadTriangle(Look, frozen=True):
    """Where one head looks from each token of a path; answered by `Measuring` records and a `TriangleRead`."""

    node: Count
    """The path's last token; the path has at most `TRIANGLE_TOKENS`."""
    layer: Count
    """From 0."""
    head: Count
    """From 0."""


HALF_TOKENS = 512
"""Tokens of the half of a repeated text, at most."""
MOST_TEXTS = 100
"""Repeated texts over which heads are scored, at most."""


class RepeatedTexts(Struct, frozen=True):
    """Texts that all models can be measured on alike: random tokens, then the same ones again, with nothing before."""

    length: Count = 50
    """Tokens of each half, 2 to `HALF_TOKENS`."""
    count: Count = 10
    """Texts, 1 to `MOST_TEXTS`."""
    seed: Count = 0
    """Of the tokens: drawn from the whole vocabulary with NumPy's default generator, with repeats."""


class ScoreHeads(Look, frozen=True):
    """How much each head does what heads are known to do; answered by `Measuring` records and a `HeadsScored`."""

    node: Count
    """The path's last token."""
    texts: RepeatedTexts | None = None
    """Score them over these, and not over the path."""


class AttentionLayer(Struct, frozen=True):
    """The attention of one layer, a row of weights for each head."""

    layer: Count
    kind: Literal["fused", "quantized", "softmax"]
    """`softmax`: the model's own attention, whose weights were read as it computed them."""
    kv_heads: Count
    """Heads of keys and values; 0 where they are not known."""
    weights: Floats
    """Shape (heads, keys); the keys in the order of the path."""
    keep: Count
    """The first keys are those of the path's first `keep` tokens, the others those of its last ones."""
    sinks: tuple[Finite, ...] = ()
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
        row: tuple[float, ...] = ()
        if 0 <= head < self.heads:
            keys = self.weights.shape[1]
            row = self.weights.stretch(head * keys, keys)
        gap = max(0, tokens - len(row))
        return (*row[: self.keep], *[0.0] * gap, *row[self.keep :])[:tokens]


class AttentionRead(Record, frozen=True):
    """Where each head of each layer looked while one token went through the model."""

    node: Count
    tokens: Count
    """Of the path, this one included."""
    layers: tuple[AttentionLayer, ...]
    """Those that have an attention whose weights are known; more than once where they have several, or run again."""
    depth: Count
    """Layers of the model."""
    missing: tuple[str, ...]
    """A sentence for each layer, or for all, that has no weights to show, with the reason."""
    facts: CaptureFacts

    @property
    def nbytes(self) -> int:
        """Bytes of all weights."""
        total = 0
        for layer in self.layers:
            total += len(layer.weights.packed)
        return total


class TriangleRead(Record, frozen=True):
    """Where one head looks from each token of a path."""

    node: Count
    """The path's last token."""
    layer: Count
    head: Count
    tokens: Count
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


class HeadScore(Struct, frozen=True):
    """What one head did, on average over the tokens that each score is about: over a path, or over repeated texts.

    All but the entropy are shares of the attention, 0 to 1. Over repeated texts of twice n tokens they are defined as
    in ARENA's exercises and TransformerLens's `head_detector`, without its zeroing of other heads.
    """

    layer: Count
    head: Count
    previous: Finite
    """On the token right before, from each token but the first (a previous-token head: Elhage et al. 2021). Over
    repeated texts from the tokens 2 to n + 1 alone: what a repeated text adds is left out."""
    induction: Finite | None
    """On the tokens that followed earlier occurrences of the same token, from each token that occurred before: the
    prefix matching score of Olsson et al. 2022, here over the text itself instead of a random text repeated. A token
    that repeats the one right before it doesn't count itself. None where no token of the path occurs again. Over
    repeated texts from the tokens of the second half on the one that followed n tokens before."""
    first: Finite
    """On the path's first token, from each token but the first (an attention sink: Xiao et al. 2023)."""
    entropy_bits: Finite
    """Entropy of the row, its sink's share as one more outcome: 3 bits are as wide as 8 tokens looked at equally."""
    duplicate: Finite | None = None
    """On earlier occurrences of the same token, from each token that occurred before (a duplicate-token head: Wang et
    al. 2022). None where no token of the path occurs again. Over repeated texts from the tokens of the second half on
    the one n tokens before."""


class HeadsScored(Record, frozen=True):
    """How much each head does what heads are known to do, over one path or over repeated texts."""

    node: Count
    """The path's last token."""
    tokens: Count
    """Of the path, or of all texts."""
    heads: tuple[HeadScore, ...]
    """By layer and head; without those whose keys' positions are not known."""
    repeats: Count
    """Tokens whose id occurs earlier in the path, and was followed by another token than the one itself: those that
    the induction score is about. Over repeated texts those of all second halves."""
    facts: CaptureFacts
    texts: RepeatedTexts | None = None
    """What they were scored over; None for the path."""
