"""The commands of speculative decoding."""

from __future__ import annotations

from typing import ClassVar

from engine.breakpoints import Breakpoints
from engine.commands.command import Command
from engine.frozen import frozen
from engine.speculation_settings import SpeculationSettings


@frozen
class LoadDraft(Command):
    """Have a draft ready; answered by `DraftLoading` records and `DraftReady`."""

    over_ranks: ClassVar[bool] = False
    stoppable: ClassVar[bool] = True
    settings: SpeculationSettings


@frozen
class TakeRound(Command):
    """Take a round of speculative decoding; answered by a `Step` a token, and `DraftRound`."""

    over_ranks: ClassVar[bool] = False
    stoppable: ClassVar[bool] = True
    settings: SpeculationSettings
    inside: bool = False
    """Only the next stage of the round: propose, verify, take. Each is answered by a `DraftRound`."""


@frozen
class RunRounds(Command):
    """Take rounds until a stop, a breakpoint or a cancel, each of which holds inside a round, too."""

    over_ranks: ClassVar[bool] = False
    stoppable: ClassVar[bool] = True
    settings: SpeculationSettings
    until: Breakpoints | None = None
    """As for `Run`."""
    over_sure: bool = False
    """As for `Run`."""
    plain: int = 0
    """Plain steps to take first: what the rounds are measured against."""


@frozen
class VerifySpeculation(Command):
    """Decode what follows a node again by plain steps, in separate caches; answered by `SpeculationVerified`."""

    over_ranks: ClassVar[bool] = False
    stoppable: ClassVar[bool] = True
    node: int
    """On the path to the current node, which ends the stretch."""
