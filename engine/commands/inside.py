"""The commands that look inside the model. Each runs a token of the tree again, on a copy of the session's cache."""

from __future__ import annotations

from dataclasses import dataclass

from engine.commands.command import Command


@dataclass(frozen=True, slots=True)
class Inside(Command):
    """Base of the commands that look inside; the session doesn't move and nothing is added to its tree."""


@dataclass(frozen=True, slots=True)
class ReadAttention(Inside):
    """Where each head of each layer looks; answered by `AttentionRead`."""

    node: int
    """The token that looks; its distribution is the one after it."""


@dataclass(frozen=True, slots=True)
class ReadLens(Inside):
    """What each layer would predict; answered by `LensRead`."""

    node: int
    positions: int = 12
    """Of the path, at its end: columns of the table."""
    top: int = 3
    """Tokens in each cell."""
    followed: tuple[int, ...] = ()
    """Tokens whose probability and rank are wanted in each cell."""


@dataclass(frozen=True, slots=True)
class Attribute(Inside):
    """What the embedding, each attention, head and MLP add to a logit; answered by `AttributionRead`."""

    node: int
    """The token after which they are predicted."""
    tokens: tuple[int, ...]
    """One id, or two whose difference is taken apart: the first less the second."""
