"""Commands and records of position embeddings."""

from __future__ import annotations

from typing import Literal

from engine.frozen import frozen
from engine.protocol.base import Record
from engine.protocol.floats import Endless, Signed
from engine.protocol.inside import CaptureFacts, Look

PositionChange = Literal["token", "path", "mask"]
"""`token`: this token alone is given another position, over the keys that the cache holds. `path`: every token of the
path is, by the same number. `mask`: the positions are right, and every token of the path sees those after it, too."""
PositionWay = Literal["rotary", "learned", "own", "none"]
"""`rotary`: queries and keys are turned by an angle for each position (RoPE). `learned`: a table has a vector for each
position, which is added to the token's. `own`: the model asks for the offset and uses it in a way of its own. `none`:
it is never asked for."""


@frozen
class Rotation:
    """How some layers turn their queries and keys, as they asked for it (RoPE, Su et al. 2021)."""

    layers: tuple[int, ...]
    dims: int
    """Numbers of a head that are turned, two by two."""
    base: float | None
    """The slowest pair turns by about 1 / base radians a token; None for a list of frequencies."""
    scale: float
    """By which positions are multiplied."""
    offset: int
    """The position that the layers were given for the first token of the forward."""


@frozen
class PositionUse:
    """The position handling of one token's own forward, nothing changed."""

    way: PositionWay
    position: int
    """Of the token in the path: what the cache calls its offset before the token."""
    keys: int
    """That the widest attention saw, the token's own included; 0 without attention."""
    rotations: tuple[Rotation, ...]
    unturned: tuple[int, ...]
    """Layers that turn nothing, of a model that turns in others."""
    table: int
    """Positions that a learned table has; 0 without one."""


@frozen
class TokenShift:
    """A token that could be next, before and after the change."""

    id: int
    text: str
    before: float
    """Probability."""
    after: float
    rank_before: int
    rank_after: int


@frozen
class PositionTried(Record):
    """The prediction after a node with a position, or the mask, changed."""

    node: int
    change: PositionChange
    offset: Signed
    """What was added to the position; 0 for the mask."""
    use: PositionUse
    """Without the change."""
    tokens: tuple[TokenShift, ...]
    """The most probable before, best first; then those that are so only after."""
    kl_bits: Endless
    """KL(before || after)."""
    largest_change: Endless
    """Of a logit, absolute."""
    largest_text: str
    """The token whose logit it is."""
    later: int
    """Tokens after it that it sees without the mask."""
    tokens_run: int
    """That went through the changed model."""
    facts: CaptureFacts


@frozen
class TryPosition(Look):
    """Ask for the model's prediction at a wrong position, or without its causal mask.

    Answered by `PositionTried`.
    """

    node: int
    change: PositionChange = "token"
    """This token alone, the whole path, or the mask."""
    offset: Signed = 0
    """What is added to positions."""
    top: int = 8
    """Tokens that are listed of each side."""
    until: int | None = None
    """A node further down the path: without the mask its tokens are seen, too. None for the token itself."""
