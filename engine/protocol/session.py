"""The commands of a session: model, settings and prompt, steps, choices, moves, what is computed again, and a server's
reply generated again.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from msgspec import Struct

from engine.protocol.base import Command, Count, Failure, Finite, Record
from engine.protocol.interventions import Intervention
from engine.protocol.model import KVReading, Loading, ModelFacts
from engine.protocol.steps import NO_OPTIONS, ChatOptions, Distribution, Message, Origin, ReplyFormat
from engine.settings import LoadSettings, Settings

# ---- sessions --------------------------------------------------------------------------------------


class Load(Command, frozen=True):
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


class Prefill(Command, frozen=True):
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
    step_size: Count | None = None
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


class GoOnPrefill(Command, frozen=True):
    """Continue a prefill that was cancelled; answered by `PrefillChunk`, `Prefilled` and `PromptReadings`."""

    stoppable: ClassVar[bool] = True
    step_size: Count | None = None
    """Tokens a chunk from here on; None changes nothing."""


class AddTurn(Command, frozen=True):
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


class Grown(Struct, frozen=True):
    """A node of a tree that is to be rebuilt."""

    node: Count
    parent: Count
    id: Count
    origin: Origin
    has_step: bool
    """True if it has a `Step` record; nodes of beams may not have been stepped."""
    prompt_begin: Count = 0
    """Of a prompt's token: tokens of the path before the prompt."""
    interventions: tuple[Intervention, ...] = ()
    """Of the first node of a branch under interventions; those after it are under the same."""


class Restore(Command, frozen=True):
    """Rebuild a recorded session's tree and move to one of its nodes.

    Nodes keep their numbers. Only the path to the node runs through the model; answered by `Restoring` records and one
    `Restored`.
    """

    nodes: tuple[Grown, ...]
    """In the order of their numbers."""
    node: Count
    """The node to move to."""
    rerolls: tuple[tuple[Count, Count], ...] = ()
    """Nodes with a re-roll count above 0, and that count."""
    replies: tuple[tuple[Count, ReplyFormat], ...] = ()
    """Last nodes of prompts, and how the reply to each is marked."""


class TakeStep(Command, frozen=True):
    """Take the token that the sampler picked and run it through the model; answered by `Step`."""

    stoppable: ClassVar[bool] = True


class Choose(Command, frozen=True):
    """Take a token after node `node`; answered by `Moved`, unless it is the current node, and `Step`."""

    stoppable: ClassVar[bool] = True
    node: Count
    token: Count
    """Its id."""
    leave_grammar: bool = False
    """True if it is taken where the grammar forbids it; from there on the grammar holds no more."""


class MoveTo(Command, frozen=True):
    """Move the session to a node of the tree; answered by `Moved`.

    Tokens of the path that were never stepped (those of beams) are stepped now, each answered by `Step`.
    """

    stoppable: ClassVar[bool] = True
    node: Count


class Take(Command, frozen=True):
    """Take tokens by id after node `node`, as a branch; answered by one `Step` a token."""

    stoppable: ClassVar[bool] = True
    node: Count
    ids: tuple[Count, ...]
    origin: Origin = "chosen"
    leave_grammar: bool = False
    """As for `Choose`."""


class Insert(Command, frozen=True):
    """Insert a text after node `node`, as a branch; answered by one `Step` a token."""

    stoppable: ClassVar[bool] = True
    node: Count
    text: str
    leave_grammar: bool = False
    """As for `Choose`."""


class Configure(Command, frozen=True):
    """Use other settings from here on; answered by `Resampled` where a prompt is loaded."""

    needs_model: ClassVar[bool] = False
    settings: Settings


class Reroll(Command, frozen=True):
    """Draw again after the current node; answered by `Resampled`."""

    stoppable: ClassVar[bool] = True
    count: Count | None = None
    """The re-roll count to draw with, 0 for the first draw; None for one more than the present one."""


class Verify(Command, frozen=True):
    """Recompute the path from nothing and compare; answered by `Verified`."""

    stoppable: ClassVar[bool] = True


class Recall(Command, frozen=True):
    """Recompute the logits after some nodes of one path, in separate caches; answered by `Recalled`."""

    stoppable: ClassVar[bool] = True
    nodes: tuple[Count, ...]


class Moved(Record, frozen=True):
    """The session moved to another node of the tree, whose path the cache now holds; this was the cost."""

    node: Count
    kept: Count
    """Tokens that stayed in the cache."""
    restored: Count
    """Tokens whose KV was restored from memory."""
    recomputed: Count
    """Tokens that ran through the model again."""
    ms: Finite
    next: Distribution
    kv: KVReading
    note: str = ""
    """Why tokens were recomputed, empty if none were."""
    restored_bytes: Count = 0
    """KV that was restored from memory."""


class Verified(Record, frozen=True):
    """The path was recomputed from nothing, and its logits compared with those of the live cache."""

    node: Count
    tokens: Count
    largest_difference: float
    """Of the logits, absolute."""
    same_order: bool
    """True if the ten most probable tokens have the same order."""
    ms: Finite
    rounding: Finite = 0.0
    """The largest difference that rounding explains: the path may have run in other chunks."""
    interventions: tuple[Intervention, ...] = ()
    """Under which the end of the path was computed, and recomputed."""


class Recalled(Record, frozen=True):
    """The logits after some nodes were recomputed and are kept."""

    lasting: ClassVar[bool] = False
    nodes: tuple[Count, ...]
    ms: Finite


# ---- a server's reply ------------------------------------------------------------------------------


class RepeatReply(Command, frozen=True):
    """Generate after a node as mlx_lm.server does, by the session's settings; answered by `ReplyRepeated` records.

    mlx_lm's own generator runs the path again in a cache of its own, and draws with MLX's random numbers, which repeat
    for a seed; the session's draws are others, and it doesn't move.
    """

    stoppable: ClassVar[bool] = True
    over_ranks: ClassVar[bool] = False
    node: Count
    """The prompt's last."""
    seed: Count | None = None
    """Of MLX's generator. Needed at a temperature above 0, unless the tokens are given."""
    ids: tuple[Count, ...] = ()
    """Tokens that are taken whatever is drawn, to have their logprobs; none to generate."""
    cached: Count = 0
    """Tokens of the prompt that the server had in its KV cache: its penalties don't see them."""


class ReplyRepeated(Record, frozen=True):
    """The tokens that mlx_lm's generator made so far."""

    lasting: ClassVar[bool] = False
    node: Count
    """The one of the command."""
    ids: tuple[Count, ...]
    """An end-of-sequence token included."""
    logprobs: tuple[float, ...]
    """Of each of them, as mlx_lm.server names them: after penalties and biases, before temperature and filters."""
    margins: tuple[float, ...]
    """By how much each logprob is larger than the largest of all other tokens; negative where it is smaller."""
    raws: tuple[bytes, ...]
    """The bytes of each."""
    last: bool
    """True if it is the last record of the command."""
