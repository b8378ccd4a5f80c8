"""The commands of a session: model, settings and prompt, steps, choices, moves, and what is computed again."""

from __future__ import annotations

from typing import ClassVar, Literal

from engine.frozen import frozen
from engine.protocol.base import Command, Failure, Record
from engine.protocol.floats import Endless
from engine.protocol.interventions import Intervention
from engine.protocol.model import KVReading, Loading, ModelFacts
from engine.protocol.segments import ReplyFormat
from engine.protocol.steps import NO_OPTIONS, ChatOptions, Distribution, Message, Origin
from engine.settings import LoadSettings, Settings


@frozen
class Load(Command):
    """Load a model; answered by `Loading` records and one `ModelFacts`."""

    needs_model: ClassVar[bool] = False
    settings: LoadSettings


def ends_model(record: Record) -> bool:
    """True if the engine let go of the model that it had: another is on its way, or failed to come.

    Args:
        record: Of any command; MLX's own import, which the engine reports at its start, ends none.
    """
    if isinstance(record, Loading):
        return record.stage != "import"
    return isinstance(record, Failure) and record.command == Load.kind


@frozen
class Prefill(Command):
    """Add a prompt to the tree and go to its end; answered by `PromptOpened`, `PrefillChunk` and `Prefilled`.

    `PromptReadings` follow as long as no other command waits; the rest of them come whenever the engine is idle.
    """

    stoppable: ClassVar[bool] = True
    text: str
    chat: bool | None
    """Through the model's chat template, as a user's message; None for as the model's prompts usually are."""
    system: str | None = None
    echo: bool | None = None
    """Prompt logprobs: None for up to 2,048 tokens, True always, False never."""
    step_size: int | None = None
    """Tokens a chunk, None for as many as take about 100 ms."""
    messages: tuple[Message, ...] = ()
    """A whole conversation, in place of `text` and `system`."""
    options: ChatOptions = NO_OPTIONS
    """What else the chat template gets."""


def through_template(facts: ModelFacts, chat: bool | None, system: str | None, options: ChatOptions) -> bool:
    """Whether a prompt is meant for the chat template.

    Args:
        facts: Of the model.
        chat: What the user says; None if nothing: then it is if the model has one, unless its folder asks for raw
            prompts and nothing is given that only a template has a place for.
        system: The system prompt.
        options: What else the template gets.
    """
    if chat is not None:
        return chat
    asked = system is not None or options.response is not None or bool(options.config)
    return options.default_template or (facts.has_chat_template and (asked or not facts.raw_prompts))


@frozen
class GoOnPrefill(Command):
    """Continue a prefill that was cancelled; answered by `PrefillChunk`, `Prefilled` and `PromptReadings`."""

    stoppable: ClassVar[bool] = True
    step_size: int | None = None
    """Tokens a chunk from here on; None changes nothing."""


@frozen
class AddTurn(Command):
    """Add the user's next turn after the current node, and go to its end.

    Answered as `Prefill` is; or by `TurnDiffers` alone, where the template would
    write the conversation so far in another way and `differing` is `ask`.
    """

    stoppable: ClassVar[bool] = True
    text: str
    history: tuple[Message, ...]
    """The conversation up to the model's last answer, which the path has."""
    options: ChatOptions = NO_OPTIONS
    echo: bool | None = None
    """Prompt logprobs: None for up to 2,048 tokens, True always, False never."""
    differing: Literal["ask", "path", "template"] = "ask"
    """`path` adds the turn to the path as it is, `template` begins a prompt with the template's own text."""


@frozen
class Grown:
    """A node of a tree that is to be rebuilt."""

    node: int
    parent: int
    id: int
    origin: Origin
    has_step: bool
    """True if it has a `Step` record; nodes of beams may not have been stepped."""
    prompt_begin: int = 0
    """Of a prompt's token: tokens of the path before the prompt."""
    interventions: tuple[Intervention, ...] = ()
    """Of the first node of a branch under interventions; those after it are under the same."""


@frozen
class Restore(Command):
    """Rebuild a recorded session's tree and move to one of its nodes.

    Nodes keep their numbers. Only the path to the node runs through the model; answered by `Restoring` records and one
    `Restored`.
    """

    nodes: tuple[Grown, ...]
    """In the order of their numbers."""
    node: int
    """The node to move to."""
    rerolls: tuple[tuple[int, int], ...] = ()
    """Nodes with a re-roll count above 0, and that count."""
    replies: tuple[tuple[int, ReplyFormat], ...] = ()
    """Last nodes of prompts, and how the reply to each is marked."""


@frozen
class TakeStep(Command):
    """Take the token that the sampler picked and run it through the model; answered by `Step`."""

    kind: ClassVar[str] = "Step"
    stoppable: ClassVar[bool] = True


@frozen
class Choose(Command):
    """Take a token after node `node`; answered by `Moved`, unless it is the current node, and `Step`."""

    stoppable: ClassVar[bool] = True
    node: int
    token: int
    """Its id."""
    leave_grammar: bool = False
    """True if it is taken where the grammar forbids it; from there on the grammar holds no more."""


@frozen
class MoveTo(Command):
    """Move the session to a node of the tree; answered by `Moved`.

    Tokens of the path that were never stepped (those of beams) are stepped now, each answered by `Step`.
    """

    stoppable: ClassVar[bool] = True
    node: int


@frozen
class Take(Command):
    """Take tokens by id after node `node`, as a branch; answered by one `Step` a token."""

    stoppable: ClassVar[bool] = True
    node: int
    ids: tuple[int, ...]
    origin: Origin = "chosen"
    leave_grammar: bool = False
    """As for `Choose`."""


@frozen
class Insert(Command):
    """Insert a text after node `node`, as a branch; answered by one `Step` a token."""

    stoppable: ClassVar[bool] = True
    node: int
    text: str
    leave_grammar: bool = False
    """As for `Choose`."""


@frozen
class Configure(Command):
    """Use other settings from here on; answered by `Resampled` where a prompt is loaded."""

    needs_model: ClassVar[bool] = False
    settings: Settings


@frozen
class Reroll(Command):
    """Draw again after the current node; answered by `Resampled`."""

    stoppable: ClassVar[bool] = True
    count: int | None = None
    """The re-roll count to draw with, 0 for the first draw; None for one more than the present one."""


@frozen
class Verify(Command):
    """Recompute the path from nothing and compare; answered by `Verified`."""

    stoppable: ClassVar[bool] = True


@frozen
class Recall(Command):
    """Recompute the logits after some nodes of one path, in separate caches; answered by `Recalled`."""

    stoppable: ClassVar[bool] = True
    nodes: tuple[int, ...]


@frozen
class Moved(Record):
    """The session moved to another node of the tree, whose path the cache now holds; this was the cost."""

    node: int
    kept: int
    """Tokens that stayed in the cache."""
    restored: int
    """Tokens whose KV was restored from memory."""
    recomputed: int
    """Tokens that ran through the model again."""
    ms: float
    next: Distribution
    kv: KVReading
    note: str = ""
    """Why tokens were recomputed, empty if none were."""
    restored_bytes: int = 0
    """KV that was restored from memory."""


@frozen
class Verified(Record):
    """The path was recomputed from nothing, and its logits compared with those of the live cache."""

    node: int
    tokens: int
    largest_difference: Endless
    """Of the logits, absolute."""
    same_order: bool
    """True if the ten most probable tokens have the same order."""
    ms: float
    rounding: float = 0.0
    """The largest difference that rounding explains: the path may have run in other chunks."""
    interventions: tuple[Intervention, ...] = ()
    """Under which the end of the path was computed, and recomputed."""


@frozen
class Recalled(Record):
    """The logits after some nodes were recomputed and are kept."""

    lasting: ClassVar[bool] = False
    nodes: tuple[int, ...]
    ms: float
