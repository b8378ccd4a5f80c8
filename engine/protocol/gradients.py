"""Gradients: which tokens of the context a logit hangs on, by the derivative with respect to their embeddings.

The model is a function from the vectors that its token embedding hands on to the logit of a token, or to the
difference of two. Its derivative says how that moves with each vector. Gradient x input is the derivative at the real
text, times the vector. Integrated gradients (Sundararajan et al. 2017) take the mean derivative on the straight line
from a baseline to the text, times what the two differ by: these shares sum to the difference of the function between
the two. With a finite number of steps they miss it by a residual, which is stated.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from engine.protocol.base import Record
from engine.protocol.inside import CaptureFacts, Look
from engine.protocol.numbers import Count, Finite, Floats

GradientMethod = Literal["input", "integrated"]
"""`input`: gradient x input. `integrated`: integrated gradients."""
GradientBaseline = Literal["mean", "first", "token", "zero"]
"""What stands in the place of every token at the baseline: the mean of all embeddings, that of the path's first token,
that of a given token, or zeros. Norms divide by next to nothing near zero: there the integral needs most steps."""


class ReadGradients(Look, frozen=True):
    """Ask which tokens a logit hangs on; answered by progress and `GradientsRead`."""

    node: Count
    """The token after which they are predicted."""
    token: Count | None = None
    """Whose logit it is, such as that of the token that was taken next; None for the most probable one."""
    other: Count | None = None
    """Whose logit is taken off."""
    method: GradientMethod = "input"
    baseline: GradientBaseline = "mean"
    """Of integrated gradients."""
    baseline_text: str = " the"
    """Of the baseline `token`: the text of one token."""
    steps: Count = 32
    """On the line from baseline to text, to begin with: three times as many until the shares are complete."""
    held_experts: bool = False
    """True if a mixture chooses its experts everywhere as it does in the real text, which is another function."""


class GradientToken(Struct, frozen=True):
    """A token whose logit is looked at."""

    id: Count
    text: str
    prob: Finite
    """As the model predicts it, at temperature 1."""
    logit: Finite


class GradientsRead(Record, frozen=True):
    """What each token of the context has of a logit, or of the difference of two tokens' logits."""

    node: Count
    tokens: tuple[GradientToken, ...]
    """One, or two whose difference is meant: the first less the second."""
    method: GradientMethod
    baseline: GradientBaseline
    baseline_text: str
    """Of the token that the baseline has everywhere; empty for zeros, and for the mean."""
    held_experts: bool
    chooses: bool
    """True if the model chooses experts, or keys, by their scores: the function jumps where another one is chosen."""
    first: Count
    """Tokens of the path before those that have a share: they stay as they are."""
    shares: Floats
    """In logits, shape (tokens,), from the token `first` on."""
    value: Finite
    """The function of the real text: a logit, or the difference of two."""
    base_value: float
    """The function of the baseline; 0 for gradient x input, which has none."""
    tried: tuple[tuple[Count, float], ...]
    """Steps, and how far the shares were from complete with so many, as a share of what they have to sum to; the last
    is the one that is shown. Empty for gradient x input."""
    flat: tuple[Count, ...]
    """Places in the path of tokens whose gradient is next to 0, though another token there moves the logit."""
    swapped: Count
    """Tokens with next to no gradient in whose place another one was tried."""
    rows: Count
    """Texts that went through the model in one forward at most."""
    forwards: Count
    """Texts that went through the model, with and without a derivative."""
    notes: tuple[str, ...]
    """A sentence for each thing that one has to know."""
    facts: CaptureFacts

    @property
    def values(self) -> tuple[float, ...]:
        """The shares."""
        return self.shares.row() if len(self.shares.shape) == 1 else ()

    @property
    def total(self) -> float:
        """The sum of the shares."""
        return sum(self.values)

    @property
    def reached(self) -> float:
        """What those of integrated gradients have to sum to."""
        return self.value - self.base_value

    @property
    def steps(self) -> int:
        """Steps of what is shown; 0 for gradient x input."""
        return self.tried[-1][0] if self.tried else 0

    @property
    def residual(self) -> float | None:
        """How far the shares are from complete, as a share of what they have to sum to; None where they needn't be."""
        return self.tried[-1][1] if self.tried else None
