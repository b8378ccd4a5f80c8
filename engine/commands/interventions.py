"""The commands that change what the model computes, and look at what it then predicts."""

from __future__ import annotations

from typing import ClassVar

from engine.commands.command import Command
from engine.commands.inside import Inside
from engine.frozen import frozen
from engine.records import Intervention, PatchKind, Scope


@frozen
class Intervene(Inside):
    """What the model predicts after a node under interventions; answered by `Intervened`."""

    node: int
    interventions: tuple[Intervention, ...]
    scope: Scope = "token"
    top: int = 10
    """The most probable tokens that are listed, of those without and of those with the interventions."""


@frozen
class SweepHeads(Inside):
    """Switch off heads, parts and layers one at a time in this token's forward, all of them unless told otherwise;
    answered by `Measuring` records and one `HeadsSwept`."""

    node: int
    token: int | None = None
    """Whose logit is followed; None for the token that was taken after the node, or else the most probable one."""
    other: int | None = None
    """The logit of this one is taken off."""
    heads: tuple[int, ...] | None = None
    """The layers whose heads are switched off; None for all layers."""
    parts: bool = True
    """Whether parts and layers are."""


@frozen
class HoldInterventions(Command):
    """Go on under interventions: the token is run again under them, as the first of a branch that stays under them.

    Every token after it, however it is chosen, is computed so until the session goes to a node of the model's own.
    Answered by `Moved`, unless the session stands before the token, `Step` and `InterventionsHeld`; where the
    interventions are empty by `Moved`, to the token of the model's own that the branch was made from, and
    `InterventionsHeld`.
    """

    over_ranks: ClassVar[bool] = False
    stoppable: ClassVar[bool] = True
    node: int
    interventions: tuple[Intervention, ...] = ()


@frozen
class PatchActivations(Inside):
    """Replace activations by those of another path, one layer and position at a time; answered by `Measuring` records
    and one `ActivationsPatched`."""

    node: int
    source: int
    """The last token of another prompt or branch with as many tokens."""
    token: int
    """Its logit, less that of `other`, is what the replacement moves towards the source's."""
    other: int
    part: PatchKind = "layer"
    """Whole layers, that is the residual stream after each, or what their attention or MLP returns."""
