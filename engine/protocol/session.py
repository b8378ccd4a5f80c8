"""The commands of a session: model, settings and prompt, steps, choices, moves, recomputation, and a server's reply
generated again.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from msgspec import Struct

from engine.protocol.base import Command, Count, Failure, Finite, OneProcess, Record, Stoppable
from engine.protocol.interventions import Intervention
from engine.protocol.model import KVReading, Loading, ModelFacts
from engine.protocol.steps import NO_OPTIONS, ChatOptions, Distribution, Message, Origin, ReplyFormat
from engine.settings import LoadSettings, Settings

# ---- sessions --------------------------------------------------------------------------------------


class Load(Command, frozen=True):
    """Load a model; answered by `Loading` records and one `ModelFacts`, and by `RanksLoaded` for a model over ranks."""

    needs_model: ClassVar[bool] = False
    settings: LoadSettings


def ends_model(record: Record) -> bool:
    """True if a record means that the engine's previous model is gone: a different one is loading, or failed to load.

    Args:
        record: Any record. `Loading` of the stage `import` doesn't count, since the engine reports it at its start.
    """
    if isinstance(record, Loading):
        return record.stage != "import"
    return isinstance(record, Failure) and record.command == Load.kind


class Prefill(Stoppable, frozen=True):
    """Add a prompt to the tree and move to its end; answered by `PromptOpened`, `PrefillChunk` and `Prefilled`.

    `PromptReadings` follow as long as no other command waits; the rest follow when the engine is idle.
    """

    text: str
    chat: bool | None
    """True to pass the text through the model's chat template as a user message, False for raw text; None for the
    model's default (see `through_template`)."""
    system: str | None = None
    echo: bool | None = None
    """True to compute prompt logprobs, False not to; None to compute them for a prompt of up to 2,048 tokens."""
    step_size: Count | None = None
    """Tokens in a chunk; None for the load setting `prefill_step_size`, or if unset, for chunks of about 100 ms."""
    messages: tuple[Message, ...] = ()
    """A whole conversation, instead of `text` and `system`; empty for none."""
    options: ChatOptions = NO_OPTIONS
    """Other values that the chat template gets."""


def through_template(facts: ModelFacts, chat: bool | None, system: str | None, options: ChatOptions) -> bool:
    """True if a prompt is passed through the chat template.

    Args:
        facts: Facts about the model.
        chat: The user's choice. None for the default: the template is used if the model has one, unless the model asks
            for raw prompts and there is no value that only a template can use.
        system: The system prompt.
        options: Other values that the template gets.
    """
    if chat is not None:
        return chat
    asked = system is not None or options.response is not None or bool(options.config)
    return options.default_template or (facts.has_chat_template and (asked or not facts.raw_prompts))


class GoOnPrefill(Stoppable, frozen=True):
    """Continue a prefill that was cancelled; answered by `PrefillChunk`, `Prefilled` and `PromptReadings`."""

    step_size: Count | None = None
    """Tokens in a chunk from here on; None to leave it unchanged."""


class AddTurn(Stoppable, frozen=True):
    """Add the user's next turn after the current node, and move to its end.

    Answered like `Prefill`; or only by `TurnDiffers`, if the template would write the conversation so far in another
    way and `differing` is `ask`.
    """

    text: str
    history: tuple[Message, ...]
    """The conversation before the model's last answer, which is taken from the path."""
    options: ChatOptions = NO_OPTIONS
    echo: bool | None = None
    """Same as in `Prefill`."""
    differing: Literal["ask", "path", "template"] = "ask"
    """The action if the template's text differs from the path's. `ask`: answer with `TurnDiffers`, to ask the user.
    `path`: add the turn to the path as it is. `template`: make the template's text of the whole conversation a new
    prompt."""


class Grown(Struct, frozen=True):
    """A node of a tree to rebuild."""

    node: Count
    parent: Count
    id: Count
    origin: Origin
    has_step: bool
    """True if the node has a `Step` record; nodes of beams may not have one."""
    prompt_begin: Count = 0
    """Number of tokens of the path before the prompt that the token belongs to; 0 for other tokens."""
    interventions: tuple[Intervention, ...] = ()
    """Interventions, given for the first node of a branch under interventions; they apply to all nodes after it."""


class Restore(Command, frozen=True):
    """Rebuild a recorded session's tree and move to one of its nodes.

    Nodes keep their numbers. Only the path to the node runs through the model; answered by `Restoring` records and one
    `Restored`.
    """

    nodes: tuple[Grown, ...]
    """Nodes of the tree in the order of their numbers."""
    node: Count
    """Node to move to."""
    rerolls: tuple[tuple[Count, Count], ...] = ()
    """The nodes with a re-roll count above 0, each with that count."""
    replies: tuple[tuple[Count, ReplyFormat], ...] = ()
    """Last nodes of prompts, each with the format of its reply; other replies have the model's own format."""


class TakeStep(Stoppable, frozen=True):
    """Take the token that the sampler picked and run it through the model; answered by `Step`."""


class Choose(Stoppable, frozen=True):
    """Take a token after a node; answered by `Moved`, unless it is the current node, and `Step`."""

    node: Count
    token: Count
    """Id of the token."""
    leave_grammar: bool = False
    """True to take the token even if the grammar forbids it; the grammar is then off from there on."""


class MoveTo(Stoppable, frozen=True):
    """Move the session to a node of the tree; answered by `Moved`.

    Tokens of the path that the session has not stepped yet (from beams) are stepped now, each answered by `Step`.
    """

    node: Count


class Take(Stoppable, frozen=True):
    """Take tokens by id after a node, as a branch; answered by one `Step` for each token."""

    node: Count
    ids: tuple[Count, ...]
    origin: Origin = "chosen"
    leave_grammar: bool = False
    """Same as in `Choose`."""


class Insert(Stoppable, frozen=True):
    """Insert a text after a node, as a branch; answered by one `Step` for each token."""

    node: Count
    text: str
    leave_grammar: bool = False
    """Same as in `Choose`."""


class Configure(Command, frozen=True):
    """Use other settings from here on; answered by `Resampled` if a prompt is loaded."""

    needs_model: ClassVar[bool] = False
    settings: Settings
    node: Count | None = None
    """Node to move to first, which `Moved` answers; None for the current one."""


class Reroll(Stoppable, frozen=True):
    """Draw again after the current node; answered by `Resampled`."""

    count: Count | None = None
    """Re-roll count to draw with, 0 for the first draw; None for one more than the current count."""
    node: Count | None = None
    """Same as in `Configure`."""


class Verify(Stoppable, frozen=True):
    """Recompute the path from the beginning and compare the logits; answered by `Verified`."""


class Recall(Stoppable, frozen=True):
    """Recompute and cache the logits after some nodes of one path, in separate KV caches; answered by `Recalled`."""

    nodes: tuple[Count, ...]


class Moved(Record, frozen=True):
    """The session moved to another node of the tree, at this cost."""

    node: Count
    kept: Count
    """Number of tokens that stayed in the cache."""
    restored: Count
    """Number of tokens whose KV was restored from memory."""
    recomputed: Count
    """Number of tokens that ran through the model again."""
    ms: Finite
    next: Distribution
    kv: KVReading
    note: str = ""
    """Reason that tokens were recomputed; empty if none were."""
    restored_bytes: Count = 0
    """Bytes of KV restored from memory."""


class Verified(Record, frozen=True):
    """The path was recomputed from the beginning, and its logits compared with those of the live cache."""

    node: Count
    tokens: Count
    largest_difference: float
    """Largest absolute difference of a logit."""
    same_order: bool
    """True if the ten most probable tokens are in the same order."""
    ms: Finite
    rounding: Finite = 0.0
    """Largest difference that rounding can explain, since the path may have run in other chunks."""
    interventions: tuple[Intervention, ...] = ()
    """Interventions under which the end of the path was computed both times; empty for none."""


class Recalled(Record, frozen=True):
    """The logits after some nodes were recomputed and cached."""

    lasting: ClassVar[bool] = False
    nodes: tuple[Count, ...]
    ms: Finite


# ---- a server's reply ------------------------------------------------------------------------------


class RepeatReply(OneProcess, frozen=True):
    """Generate after a node as mlx_lm.server does, with the session's settings; answered by `ReplyRepeated` records.

    mlx_lm's own generator runs the path again in a separate cache and draws with MLX's random numbers, which a seed
    makes repeatable. The session itself draws differently, and it doesn't move.
    """

    stoppable: ClassVar[bool] = True
    node: Count
    """Last node of the prompt."""
    seed: Count | None = None
    """Seed of MLX's generator; may be None at temperature 0, or if `ids` are given."""
    ids: tuple[Count, ...] = ()
    """Token ids to take instead of drawing, to get their logprobs; empty to generate."""
    cached: Count = 0
    """Number of prompt tokens that the server had in its KV cache; its penalties don't apply to them."""


class ReplyRepeated(Record, frozen=True):
    """The tokens that mlx_lm's generator has generated so far."""

    lasting: ClassVar[bool] = False
    node: Count
    """Node of the command."""
    ids: tuple[Count, ...]
    """Token ids, including an end-of-sequence token."""
    logprobs: tuple[float, ...]
    """Logprob of each token, as in mlx_lm.server: after penalties and biases, before temperature and filters."""
    margins: tuple[float, ...]
    """Each logprob minus the largest logprob of the other tokens; negative if another token is more probable."""
    raws: tuple[bytes, ...]
    """Bytes of each token."""
    last: bool
    """True for the last record of the command."""
