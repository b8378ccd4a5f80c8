"""Steering: a direction of the residual stream, and what adding it does, beside random directions of the same norm.

A direction is added as an `Intervention` of the kind `direction`, so that what can be done with those can be done with
it: tried at a token, held for a branch, recorded, restored.
"""

from __future__ import annotations

from msgspec import Struct

from engine.protocol.base import Record
from engine.protocol.inside import CaptureFacts, Inside, Scope
from engine.protocol.numbers import Count, Finite, Floats

STRENGTHS = (-8.0, -4.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 4.0, 8.0)
"""That are tried where none are asked for."""
RANDOM_DIRECTIONS = 32
"""Random directions that each strength is compared with."""
LONGEST_NAME = 40
"""Characters of a direction's name at most."""


class Direction(Struct, frozen=True):
    """A vector of the residual stream's width."""

    name: str
    """For a person: `happy-sad`."""
    layer: Count
    """It was read after this one."""
    vector: Floats
    """Shape (width,)."""
    model: str = ""
    """Short name of the model that it was made with."""
    fingerprint: str = ""
    """Of that model, as `ModelFacts` has it; empty where it isn't known."""

    @property
    def digest(self) -> str:
        """Of the vector, 8 hexadecimal digits."""
        from hashlib import blake2b  # OpenSSL: 2 ms, and nothing else of the first screen needs it

        return blake2b(self.vector.packed, digest_size=4).hexdigest()

    @property
    def label(self) -> str:
        """Its name without what can't be printed: `happy-sad`."""
        return "".join(each for each in self.name[:LONGEST_NAME] if each.isprintable())


class MakeDirection(Inside, frozen=True):
    """Make a direction after a layer: the mean stream of some texts less that of others, each at its last token; or the
    stream at one node less that at another. Answered by `DirectionMade`."""

    layer: Count
    toward: tuple[str, ...] = ()
    """Texts, cut into tokens as a prompt without a chat template is."""
    away: tuple[str, ...] = ()
    nodes: tuple[Count, ...] = ()
    """Two nodes, in place of the texts: the first less the second."""
    name: str = ""


class DirectionMade(Record, frozen=True):
    """A direction, and how it was made."""

    direction: Direction
    toward: tuple[str, ...]
    away: tuple[str, ...]
    nodes: tuple[Count, ...]
    norm: Finite
    """Its length."""
    stream_norm: Finite
    """The mean length of the streams that it was made of."""
    tokens_run: Count
    facts: CaptureFacts


class SweepStrengths(Inside, frozen=True):
    """Add a direction with one strength after another, and as many random ones of the same norm, to the stream after a
    layer; answered by `Measuring` records and one `StrengthsSwept`."""

    node: Count
    direction: Direction
    layer: Count
    scope: Scope = "token"
    begin: Count = 0
    """In the context: the first position that it is added at."""
    token: Count | None = None
    """Its logit, less that of `other`, is followed; None for the most probable one."""
    other: Count | None = None
    """None for the most probable one besides the token."""
    strengths: tuple[Finite, ...] = STRENGTHS


class SteeredStrength(Struct, frozen=True):
    """What a direction does with one strength, and between what most random directions of the same norm do."""

    strength: Finite
    kl_bits: float
    """KL divergence of the steered distribution from the model's own, KL(own || steered)."""
    kl_low: float
    """The 5th percentile of the random directions."""
    kl_high: float
    """The 95th."""
    change: float
    """What is added to the difference of the two logits."""
    change_low: float
    change_high: float
    prob: Finite
    """Of the followed token."""
    other_prob: Finite
    top: Count
    """The most probable token."""
    top_text: str
    top_prob: Finite

    @property
    def beyond(self) -> bool:
        """True if the change of the difference lies outside of what most random directions do."""
        return not self.change_low <= self.change <= self.change_high


class StrengthsSwept(Record, frozen=True):
    """The effect of a direction as a function of its strength, with a band of random directions."""

    node: Count
    direction: Direction
    layer: Count
    """It was added after this one."""
    scope: Scope
    """`token`: at the node's token alone, over the model's own KV. `context`: from `begin` on, so that the KV of those
    positions is steered, too."""
    begin: Count
    """The first position that it was added at, from 0."""
    steered: Count
    """Positions that it was added at."""
    token: Count
    text: str
    other: Count
    other_text: str
    difference: float
    """The logit of the token less that of the other one, without steering."""
    prob: Finite
    """Of the token, without steering."""
    other_prob: Finite
    norm: Finite
    """The direction's length."""
    stream_norm: Finite
    """That of the stream after the layer at the node's token, without steering."""
    strengths: tuple[SteeredStrength, ...]
    """Ascending."""
    random: Count
    """Random directions."""
    seed: Count
    """Of those."""
    rows: Count
    """Directions in one forward."""
    tokens_run: Count
    note: str
    facts: CaptureFacts

    def at(self, strength: float) -> SteeredStrength | None:
        """What one strength does; None where it was not tried."""
        return next((each for each in self.strengths if each.strength == strength), None)

    @property
    def share(self) -> float:
        """The direction's length as a share of the stream's."""
        return self.norm / self.stream_norm if self.stream_norm else 0.0
