"""Commands and records of position embeddings."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from engine.protocol.base import Record
from engine.protocol.inside import CaptureFacts, Look
from engine.protocol.numbers import Count, Finite

PositionChange = Literal["token", "path", "mask"]
"""`token`: this token alone is given another position, over the keys that the cache holds. `path`: every token of the
path is, by the same number. `mask`: the positions are right, and every token of the path sees those after it, too."""
PositionWay = Literal["rotary", "learned", "own", "none"]
"""`rotary`: queries and keys are turned by an angle for each position (RoPE). `learned`: a table has a vector for each
position, which is added to the token's. `own`: the model asks for the offset and uses it in a way of its own. `none`:
it is never asked for."""


class Rotation(Struct, frozen=True):
    """How some layers turn their queries and keys, as they asked for it (RoPE, Su et al. 2021)."""

    layers: tuple[Count, ...]
    dims: Count
    """Numbers of a head that are turned, two by two."""
    base: Finite | None
    """The slowest pair turns by about 1 / base radians a token; None for a list of frequencies."""
    scale: Finite
    """By which positions are multiplied."""
    offset: Count
    """The position that the layers were given for the first token of the forward."""


class PositionUse(Struct, frozen=True):
    """The position handling of one token's own forward, nothing changed."""

    way: PositionWay
    position: Count
    """Of the token in the path: what the cache calls its offset before the token."""
    keys: Count
    """That the widest attention saw, the token's own included; 0 without attention."""
    rotations: tuple[Rotation, ...]
    unturned: tuple[Count, ...]
    """Layers that turn nothing, of a model that turns in others."""
    table: Count
    """Positions that a learned table has; 0 without one."""


class TokenShift(Struct, frozen=True):
    """A token that could be next, before and after the change."""

    id: Count
    text: str
    before: Finite
    """Probability."""
    after: Finite
    rank_before: Count
    rank_after: Count


class PositionTried(Record, frozen=True):
    """The prediction after a node with a position, or the mask, changed."""

    node: Count
    change: PositionChange
    offset: int
    """What was added to the position; 0 for the mask."""
    use: PositionUse
    """Without the change."""
    tokens: tuple[TokenShift, ...]
    """The most probable before, best first; then those that are so only after."""
    kl_bits: float
    """KL(before || after)."""
    largest_change: float
    """Of a logit, absolute."""
    largest_text: str
    """The token whose logit it is."""
    later: Count
    """Tokens after it that it sees without the mask."""
    tokens_run: Count
    """That went through the changed model."""
    facts: CaptureFacts


class TryPosition(Look, frozen=True):
    """Ask for the model's prediction at a wrong position, or without its causal mask.

    Answered by `PositionTried`.
    """

    node: Count
    change: PositionChange = "token"
    """This token alone, the whole path, or the mask."""
    offset: int = 0
    """What is added to positions."""
    top: Count = 8
    """Tokens that are listed of each side."""
    until: Count | None = None
    """A node further down the path: without the mask its tokens are seen, too. None for the token itself."""
