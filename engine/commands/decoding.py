"""The commands that decode several tokens: runs, look-aheads, beam searches."""

from __future__ import annotations

from typing import ClassVar

from engine.beam_settings import BeamSettings
from engine.breakpoints import Breakpoints
from engine.commands.command import Command
from engine.frozen import frozen


@frozen
class Run(Command):
    """Step until a stop or a cancel."""

    stoppable: ClassVar[bool] = True
    pace: float | None = None
    """Steps a second at most, None for no limit."""
    until: Breakpoints | None = None
    """Breakpoints in addition to the settings' own stops; answered by `BreakpointHit` where one stops the run."""
    over_sure: bool = False
    """Stop, too, where the next token is not sure (`engine.breakpoints.UNSURE`)."""
    goes_on: bool = False
    """It continues the run before, which was cancelled for another pace: its breakpoints keep their counts."""


@frozen
class LookAhead(Command):
    """Decode greedily after some candidates; answered by `LookedAhead` records.

    The session doesn't move and nothing is added to its tree.
    """

    node: int
    """The node before the candidates."""
    ids: tuple[int, ...]
    tokens: int = 8


@frozen
class SearchBeams(Command):
    """Search with beams from the current node; answered by `BeamOpened`, `BeamStep` records and `BeamEnded`.

    A search that was cancelled, or paused after `steps`, waits for `GoOnBeams` until the next prompt, model or search.
    """

    settings: BeamSettings
    steps: int | None = None
    """Steps to take, None for all."""


@frozen
class GoOnBeams(Command):
    """Continue the paused search; answered by `BeamStep` records and, at its end, `BeamEnded`."""

    steps: int | None = None
    """Steps to take, None for all."""
