"""Commands and records of runs and of look-ahead."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from engine.breakpoints import Breakpoints
from engine.protocol.base import Command, Record
from engine.protocol.numbers import Count, Finite


class Run(Command, frozen=True):
    """Step until a stop or a cancel."""

    stoppable: ClassVar[bool] = True
    pace: Finite | None = None
    """Steps a second at most, None for no limit."""
    until: Breakpoints | None = None
    """Breakpoints in addition to the settings' own stops; answered by `BreakpointHit` where one stops the run."""
    over_sure: bool = False
    """Stop, too, where the next token is not sure (`engine.breakpoints.UNSURE`)."""
    goes_on: bool = False
    """It continues the run before, which was cancelled for another pace: its breakpoints keep their counts."""


class LookAhead(Command, frozen=True):
    """Decode greedily after some candidates; answered by `LookedAhead` records.

    The session doesn't move and nothing is added to its tree.
    """

    node: Count
    """The node before the candidates."""
    ids: tuple[Count, ...]
    tokens: Count = 8


class AheadLine(Struct, frozen=True):
    """One candidate, and the tokens that greedy decoding would take after it."""

    id: Count
    """The candidate."""
    ids: tuple[Count, ...]
    """The tokens after it, an end-of-sequence token included."""
    text: str
    """The characters that these tokens finish, after those of the candidate; without an end-of-sequence token."""
    logprob: float
    """Of the candidate and all tokens after it together, float32 log-softmax of the model's own logits."""
    ended: bool
    """True if an end-of-sequence token was reached."""


class LookedAhead(Record, frozen=True):
    """The state of a look-ahead: emitted after every token, with all lines so far."""

    node: Count
    """The node before the candidates."""
    lines: tuple[AheadLine, ...]
    """In the order of the candidates in the command."""
    tokens: Count
    """How many each line will have, unless it ends before."""
    last: bool
    ms: Finite
    """Since the look-ahead began."""
    note: str = ""
    """Why the lines run through the model one after another, or the path was recomputed; empty if neither."""


class BreakpointHit(Record, frozen=True):
    """A run stopped because of its breakpoints."""

    node: Count
    """The session's current node."""
    conditions: tuple[str, ...]
    """Those that held, each as a sentence with its figures: `entropy 3.21 bits is above 3.00`."""
