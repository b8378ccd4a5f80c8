"""The commands of two models in lockstep."""

from __future__ import annotations

from typing import ClassVar

from engine.commands.command import Command
from engine.frozen import frozen
from engine.settings import LoadSettings


@frozen
class OpenLockstep(Command):
    """Load a second model beside the first; answered by `LockstepMemory`, `Measuring` and `LockstepOpened`."""

    over_ranks: ClassVar[bool] = False
    against: LoadSettings
    """The second model; with the first one's settings it shares the first one's weights."""
    bits: int | None = None
    """Quantize it while it is loaded, as mlx_lm.convert does; None for what its files hold."""
    group_size: int = 64
    """Weights that share a scale, where it is quantized."""
    system: str | None = None
    """The system prompt that the second model gets in the place of the conversation's; None for the same one."""
    template: str | None = None
    """The chat template, jinja2 source, that the second model gets in the place of its own; None for its own."""


@frozen
class CloseLockstep(Command):
    """Drop the second model; answered by `LockstepClosed`."""

    over_ranks: ClassVar[bool] = False


@frozen
class DiffText(Command):
    """Read a text in both models; answered by `LockstepRead` records and one `LockstepEnded`."""

    over_ranks: ClassVar[bool] = False
    text: str
    window: int | None = None
    """Tokens of the first model's in a window; None for all that fits the context windows of both."""
    candidates: int = 0
    """Most probable tokens of each that are listed at each place."""


@frozen
class ReadLockstep(Command):
    """Read what was not yet read of the path to a node in both models; answered by `LockstepRead` records."""

    over_ranks: ClassVar[bool] = False
    node: int
    candidates: int = 12
    """Most probable tokens of each that are listed at each place."""


@frozen
class FollowSecond(Command):
    """Take the token after a node that the second model picks; answered by a `Step`."""

    over_ranks: ClassVar[bool] = False
    stoppable: ClassVar[bool] = True
    node: int


@frozen
class PartWays(Command):
    """Let both models go on from a node with their own picks; answered by `Measuring` records and `WaysParted`."""

    over_ranks: ClassVar[bool] = False
    node: int
    tokens: int = 40
    """Decoded by each at most."""
