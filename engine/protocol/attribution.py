"""Direct logit attribution: what each writer to the residual stream adds to the logit of a token.

The stream before a model's final norm is the sum of the embedding and of what every attention and MLP wrote to it.
With the scale of the final norm held at its value for this token, the rest of the model is linear, so the logit is the
sum of what each of them adds. That is the direct effect alone: what a part changes in what later layers compute is not
in its number, but in theirs. Switching the part off shows its total effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from engine.protocol.base import Record
from engine.protocol.inside import CaptureFacts, Look
from engine.protocol.numbers import Count, Finite, Floats


class Attribute(Look, frozen=True):
    """What the embedding, each attention, head and MLP add to a logit; answered by `AttributionRead`."""

    node: Count
    """The token after which they are predicted."""
    tokens: tuple[Count, ...]
    """One id, or two whose difference is taken apart: the first less the second."""


WriterKind = Literal["embedding", "attention", "mlp", "recurrence", "other", "residual", "layer", "constant"]
"""`residual`: what a layer does to the stream itself, such as scaling it. `layer`: a layer as a whole, where its parts
can't be told apart. `constant`: what the model's end adds to any stream, the biases of its norm and head."""


class AttributedToken(Struct, frozen=True):
    """A token whose logit is taken apart."""

    id: Count
    text: str
    prob: Finite
    """As the model predicts it, at temperature 1."""
    rank: Count
    """From 1."""
    logit: Finite
    """The model's own."""
    reached: Finite
    """What the contributions have to sum to: the logit, in a model with a softcap the one before it."""


class Contribution(Struct, frozen=True):
    """The direct contribution of one writer to the logit of each token."""

    kind: WriterKind
    layer: Count | None
    """None for the embedding and the constant."""
    name: str
    """The layer's attribute that holds the module; empty where there is none."""
    logits: tuple[float, ...]
    """For each token, in logits; of an attention with its heads in it."""
    heads: Floats = Floats((0, 0), b"")
    """Shape (heads, tokens), what each head of an attention adds; no rows where they can't be told apart."""
    rest: tuple[Finite, ...] = ()
    """For each token what the attention adds without any head, such as its bias: heads and rest sum to `logits`."""

    def head(self, index: int) -> tuple[float, ...]:
        """The contribution of a head to the logit of each token; empty where the heads can't be told apart.

        Args:
            index: From 0.
        """
        return self.heads.row(index)


class AttributionRead(Record, frozen=True):
    """The logit of a token, or the difference of two tokens' logits, as a sum of contributions."""

    node: Count
    tokens: tuple[AttributedToken, ...]
    """One, or two whose difference is meant: the first less the second."""
    parts: tuple[Contribution, ...]
    """From the embedding through the layers to the constant, in the order in which they write."""
    depth: Count
    """Layers of the model."""
    softcap: bool
    """True if the model bends its logits after the sum (tanh): the contributions are to the logits before that."""
    notes: tuple[str, ...]
    """A sentence for each kind of thing that could not be split, with the layers."""
    facts: CaptureFacts

    def bar(self, logits: Sequence[float]) -> float:
        """One number of contributions to each token: that to the one token, or to the first less that to the second.

        Args:
            logits: For each token, as `Contribution` has them.
        """
        return logits[0] - logits[1] if len(logits) > 1 else logits[0]

    @property
    def reached(self) -> float:
        """What the bars of all parts have to sum to."""
        return self.bar([token.reached for token in self.tokens])

    @property
    def total(self) -> float:
        """Their sum; the check `parts` compares the two for each token."""
        return sum(self.bar(part.logits) for part in self.parts)
