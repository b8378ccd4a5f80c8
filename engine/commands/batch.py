"""The commands of a batch: several prompts at once, or many draws of one."""

from __future__ import annotations

from typing import ClassVar

from engine.commands.command import Command
from engine.frozen import frozen
from engine.records import NO_OPTIONS, ChatOptions
from engine.settings import Settings


@frozen
class LanePrompt:
    """A prompt of a batch."""

    text: str
    chat: bool = False
    """Through the model's chat template, as a user's message."""
    system: str | None = None
    options: ChatOptions = NO_OPTIONS
    """What else the chat template gets."""
    settings: Settings | None = None
    """Of its sampler and its stops; None for the session's."""


@frozen
class StartBatch(Command):
    """Begin a batch, and prefill the lanes that begin; the session doesn't change.

    Answered by `BatchOpened`, and as `AdvanceBatch`. It ends the batch before.
    """

    over_ranks: ClassVar[bool] = False
    prompts: tuple[LanePrompt, ...]
    size: int = 32
    """Lanes at once; the others wait until one has ended, or all of them."""
    static: bool = False
    """Whether lanes that ended keep their rows, and lanes that wait join only when all have ended."""
    steps: int | None = None
    """Steps to take, None for all."""


@frozen
class AdvanceBatch(Command):
    """Continue the batch; a cancel pauses it.

    Answered by `LanesJoined`, `LanesPrefilled`, `LaneStarted`, `BatchStep` and `LaneEnded` records, and at the end by
    `BatchEnded`.
    """

    over_ranks: ClassVar[bool] = False
    steps: int | None = None
    """Steps to take, None for all."""


@frozen
class AddLanes(Command):
    """Add prompts to the batch, to begin with its next step where there is room; answered by `LanesAdded`."""

    over_ranks: ClassVar[bool] = False
    aside: ClassVar[bool] = True
    prompts: tuple[LanePrompt, ...]


@frozen
class RemoveLane(Command):
    """Take a lane out of the batch, or out of those that wait; answered by `LaneEnded`."""

    over_ranks: ClassVar[bool] = False
    aside: ClassVar[bool] = True
    lane: int


@frozen
class CompareBatch(Command):
    """Run the prompt of each lane alone, once all have ended.

    Answered by `Measuring`, `LaneCompared` and one `BatchCompared`.
    """

    over_ranks: ClassVar[bool] = False


@frozen
class DrawMany(Command):
    """Draw many continuations after a node, over one copy of its KV; the session doesn't change.

    Answered as `StartBatch`, with one `DrawsCounted` after the first tokens. Draw k is the one that k re-rolls of each
    token give. It ends the batch before.
    """

    over_ranks: ClassVar[bool] = False
    count: int
    node: int | None = None
    """None for the current one."""
    tokens: int = 1
    """Of each continuation at most; with 1 the model runs nothing."""
    size: int = 32
    """Continuations at once."""
