"""The commands that look inside the model. Each runs a token of the tree again, on a copy of the session's cache."""

from __future__ import annotations

from typing import ClassVar

from engine.commands.command import Command
from engine.frozen import frozen
from engine.records import PositionChange


@frozen
class Inside(Command):
    """Base of the commands that look inside; the session doesn't move and nothing is added to its tree."""

    over_ranks: ClassVar[bool] = False


@frozen
class ReadAttention(Inside):
    """Where each head of each layer looks; answered by `AttentionRead`."""

    node: int
    """The token that looks; its distribution is the one after it."""


@frozen
class ReadLens(Inside):
    """What each layer would predict; answered by `LensRead`."""

    node: int
    positions: int = 12
    """Of the path, at its end: columns of the table."""
    top: int = 3
    """Tokens in each cell."""
    followed: tuple[int, ...] = ()
    """Tokens whose probability and rank are wanted in each cell."""


@frozen
class Attribute(Inside):
    """What the embedding, each attention, head and MLP add to a logit; answered by `AttributionRead`."""

    node: int
    """The token after which they are predicted."""
    tokens: tuple[int, ...]
    """One id, or two whose difference is taken apart: the first less the second."""


@frozen
class ReadModules(Inside):
    """What is inside the model: one token runs on caches of its own; answered by `ModelModules`."""


@frozen
class ReadExperts(Inside):
    """Which experts a token goes through, and what recurrent layers keep after it; answered by `ExpertsRead`."""

    node: int


@frozen
class TryPosition(Inside):
    """What the model predicts where it is told a wrong position, or without its causal mask.

    Answered by `PositionTried`.
    """

    node: int
    change: PositionChange = "token"
    """This token alone, the whole path, or the mask."""
    offset: int = 0
    """What is added to positions."""
    top: int = 8
    """Tokens that are listed of each side."""
    until: int | None = None
    """A node further down the path: without the mask its tokens are seen, too. None for the token itself."""
