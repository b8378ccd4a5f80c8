"""Prompts and steps: prompt segments, distributions, sampler stages, times and memory; runs, look-ahead, and the user's
marks.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import starmap
from types import GenericAlias
from typing import Any, ClassVar, Literal, overload

from msgspec import Struct, msgpack
from msgspec.structs import astuple, fields

from engine.breakpoints import Breakpoints
from engine.protocol.base import Command, Count, Finite, Interleavable, Record, Stoppable
from engine.protocol.model import KVReading, Memory
from engine.settings import Settings

# ---- segments --------------------------------------------------------------------------------------

SegmentKind = Literal[
    "system", "user", "thinking", "answer", "tool call", "tool result", "tools", "markup"
]  # fmt: skip
"""Kind of a segment. `tools`: definitions of tools. `markup`: text of the template itself, and special tokens."""


class SegmentRun(Struct, frozen=True):
    """Consecutive tokens of a prompt that belong to one message and are of one kind."""

    kind: SegmentKind
    begin: Count
    """Index of the first token in the prompt, from 0."""
    end: Count
    """Index after the last token."""
    message: Count
    """Index of the message, from 0; -1 for definitions of tools."""


class LeftOut(Struct, frozen=True):
    """A part of a conversation that is missing in its prompt."""

    kind: SegmentKind
    message: Count
    """Index of the message, from 0; -1 for definitions of tools."""
    written: bool
    """True if the prompt may contain the part in another form, as markup; False if the template leaves it out."""


class ReplyMark(Struct, frozen=True):
    """A text that ends one segment of a reply and begins another."""

    at: str
    """State in which the mark is recognized: a segment kind, optionally with a name after a colon."""
    text: str
    to: str
    """State after the mark."""


class ReplyFormat(Struct, frozen=True):
    """Marks between the segments of a model's replies, and the parser of its tool calls."""

    begin: str = "answer"
    """State at the end of the prompt."""
    marks: tuple[ReplyMark, ...] = ()
    parser: str = ""
    """Parser of the tool calls: the name of a module of `mlx_lm.tool_parsers`, or `json`; empty for none."""


class PromptSegments(Struct, frozen=True):
    """Segments of a prompt, and the format of the reply that follows it."""

    runs: tuple[SegmentRun, ...] = ()
    """Segments in the order of the text, without markup; empty for raw text or if they can't be located."""
    left_out: tuple[LeftOut, ...] = ()
    reply: ReplyFormat = ReplyFormat()


NO_SEGMENTS = PromptSegments()


class CheckToolCall(Interleavable, frozen=True):
    """Parse the last tool call up to a node, like mlx_lm's server; answered by `ToolCallChecked`.

    It is also answered between the steps of a run.
    """

    node: Count
    """Node of the token that ended the call, or of the last token of the reply."""


class ToolCallChecked(Record, frozen=True):
    """The result of parsing a tool call of a reply."""

    node: Count
    """The command's node."""
    names: tuple[str, ...]
    """Names of the called functions; empty if the call can't be parsed, or consists of arguments only."""
    error: str
    """Reason why the call can't be parsed; empty if it can, or if no parser was tried."""
    wrong: Count
    """Node of the first wrong token; 0 if there is none."""
    parser: str
    """Parser used, as in `ReplyFormat`; empty if there is none, or if the call is too long."""


# ---- prompts and steps -----------------------------------------------------------------------------


class Message(Struct, frozen=True):
    """One message of a conversation."""

    role: str
    """`system`, `user`, `assistant`, `tool`, or another role of the template."""
    content: str
    more: str = ""
    """Other keys of the message as a JSON object; empty if it has none."""


class ChatOptions(Struct, frozen=True):
    """The values that a chat template gets in addition to the messages."""

    config: str = ""
    """Variables of the template as a JSON object (`--chat-template-config` of mlx_lm.generate)."""
    tools: str = ""
    """Tools as a JSON list; empty for none."""
    default_template: bool = False
    """True to use the default template of the tokenizer's class if the model has none."""
    response: str | None = None
    """Given beginning of the answer (`--prefill-response` of mlx_lm.generate), with which the prompt ends. In the
    record of a prompt it has the form that the template wrote."""


NO_OPTIONS = ChatOptions()


def conversation(text: str, system: str | None) -> tuple[Message, ...]:
    """A conversation of one user message, after the system prompt if there is one."""
    before = (Message("system", system),) if system is not None else ()
    return (*before, Message("user", text))


class TurnDiffers(Record, frozen=True):
    """A turn was not added because the template's text differs from the path's; the user decides which one to keep."""

    lasting: ClassVar[bool] = False
    at: Count
    """Number of characters that both texts share at the beginning."""
    path: str
    """Text of the path and the turn, after the shared beginning."""
    template: str
    """The template's text of the whole conversation, after the shared beginning."""
    kept: Count
    """Number of tokens that the template's text shares with the path; the others would run again."""
    tokens: Count
    """Number of tokens of the template's text."""


Origin = Literal["prompt", "greedy", "sampled", "chosen", "inserted", "beam", "intervened", "served"]
"""Origin of a token of the tree. `served`: a server sent it. `intervened`: it was computed under interventions,
however it was chosen."""


class StepTimes(Struct, frozen=True, gc=False):
    """Milliseconds of one step.

    Unless `pipelined` is True, they don't include work for the next step. The totals of a run add up to its time.
    """

    total: Finite
    forward: Finite
    """Forward pass, until the logits are in host memory."""
    sample: Finite
    """Penalties, filters and draw for the next token."""
    inspect: Finite
    """Candidates, entropy, ranks and readings; in a pipelined step they overlap the next forward pass."""
    pipelined: bool = False
    """True in a run without a pace. `total` is then the time from the pick of the step's token to the pick of the next
    one, without `inspect`; both forward passes may have begun earlier, with a guess of the token."""
    collecting: Finite = 0.0
    """Time that Python's garbage collector took during the step."""
    drawing: Finite = 0.0
    """Time that another thread spent drawing the screen during the step."""
    cold: bool = False
    """True for the model's first step after loading, which includes one-time work; rates leave it out."""
    shared: Count = 0
    """Number of tokens from the step's round of speculative decoding; 0 for a plain step. In a round, `total` and
    `forward` are this token's share of the drafting and of the single forward pass."""


class Candidate(Struct, frozen=True, gc=False):
    """One token that could be next."""

    id: Count
    text: str
    """Characters that the token would add to the text so far; empty while they are unfinished."""
    raw: bytes
    special: bool
    logprob: float
    """float32 log-softmax of the model's own logits, before any penalty or filter."""
    prob: Finite
    rank: Count
    """Rank by the model's own logits: 1 for the most probable; equal logits share the lowest rank."""
    sampler_prob: Finite
    """Probability of the token after all stages of the sampler."""
    cut_by: str | None
    """Name of the stage that removed the token; None if no stage did."""


_ENCODER = msgpack.Encoder()
_ROW: Any = GenericAlias(tuple, tuple(field.type for field in fields(Candidate)))
_DECODER = msgpack.Decoder(tuple[_ROW, ...])


class Candidates(Sequence[Candidate]):
    """The candidates of a distribution, packed until they are read. Compares equal to a tuple of the same candidates.

    Twenty candidates take 1 KB packed, but 4.5 KB as objects: most of the memory of a session of 20,000 steps.

    Args:
        candidates: The candidates, or the value of `packed` of another instance.
    """

    __slots__ = ("packed",)

    def __init__(self, candidates: Iterable[Candidate] | bytes) -> None:
        self.packed = (
            candidates if isinstance(candidates, bytes) else _ENCODER.encode([*map(astuple, candidates)])
        )
        """A msgpack array with an array of field values, in order, for each candidate."""

    @classmethod
    def checked(cls, packed: bytes) -> Candidates:
        """Candidates from a file, validated now instead of when they are first read.

        Raises:
            MsgspecError: The bytes are not valid candidates.
        """
        _DECODER.decode(packed)
        return cls(packed)

    def __len__(self) -> int:
        return len(_unpacked(self.packed))

    @overload
    def __getitem__(self, place: int) -> Candidate: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[Candidate, ...]: ...

    def __getitem__(self, place: int | slice) -> Candidate | tuple[Candidate, ...]:
        return _unpacked(self.packed)[place]

    def __iter__(self) -> Iterator[Candidate]:
        return iter(_unpacked(self.packed))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Candidates):
            return self.packed == other.packed or tuple(self) == tuple(other)
        return isinstance(other, tuple) and tuple(self) == other

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + sys.getsizeof(self.packed)

    def __repr__(self) -> str:
        return repr(tuple(self))


@lru_cache(maxsize=64)
def _unpacked(packed: bytes) -> tuple[Candidate, ...]:
    return tuple(starmap(Candidate, _DECODER.decode(packed)))


NO_CANDIDATES = Candidates(())


class StageReading(Struct, frozen=True, gc=False):
    """The effect of one stage of the sampler."""

    name: str
    kept: Count
    """Number of tokens left after the stage."""
    removed_mass: Finite
    """Total probability of the tokens that the stage removed, before the stage."""


class GrammarReading(Struct, frozen=True, gc=False):
    """Number and probability of the tokens that a grammar allows after one node."""

    allowed: Count
    """Number of allowed tokens."""
    mass: Finite
    """Total probability of the allowed tokens in the model's own distribution; near 0, the grammar works against the
    model."""
    state: Literal["open", "accepting", "complete", "left", "ended"]
    """State of the grammar. `accepting`: the text may end here; `complete`: it must. `left`: a token was taken that the
    grammar forbids; `ended`: the text ended with an end-of-sequence token. After the last two the grammar is off."""
    forced: bytes = b""
    """Bytes with which every text that the grammar allows continues."""


MADE_UP = 2**20
"""First id for tokens of a server's reply without ids; larger than any vocabulary."""


class Distribution(Struct, frozen=True, gc=False):
    """The model's and the sampler's distribution after one node."""

    node: Count
    position: Count
    """Position of the next token in the context, from 0."""
    candidates: Candidates
    """The model's most probable tokens, best first, and the picked token whatever its rank."""
    entropy_bits: Finite
    """Entropy of the model's own distribution."""
    sampler_entropy_bits: Finite
    """Entropy of the distribution that the sampler draws from."""
    others: Count
    """Number of tokens of the vocabulary that are not among the candidates."""
    others_prob: Finite
    others_sampler_prob: Finite
    stages: tuple[StageReading, ...]
    picked: Count
    """Id of the token that the sampler picked: the next step takes it."""
    draw: Finite | None
    """Random number in [0, 1) that picked the token; None for greedy decoding."""
    draw_from: Finite | None
    """Begin of the picked token's interval in the sampler's cumulative distribution by rank; None for greedy
    decoding."""
    draw_to: Finite | None
    """End of that interval; None for greedy decoding."""
    reroll: Count
    """Number of repeats of the draw at this node; part of the draw's seed."""
    grammar: GrammarReading | None = None
    """Reading of the grammar after the node; None without a grammar or before it begins."""
    listed: bool = False
    """True if the distribution comes from a server's reply. The candidates are then those listed in the reply, and the
    entropies are lower bounds that count all other tokens as one. Other ranks and the step's times, memory and cache
    are unknown and given as 0; the sampler's stages are unknown, too."""


class PromptToken(Struct, frozen=True, gc=False):
    """One token of the prompt, with its prompt logprob if computed."""

    node: Count
    position: Count
    id: Count
    text: str
    raw: bytes
    special: bool
    logprob: float | None = None
    """Logprob of the token given those before it; None for the first token or if prompt logprobs are off."""
    prob: Finite | None = None
    rank: Count | None = None
    entropy_bits: Finite | None = None
    candidates: Candidates = NO_CANDIDATES
    """The model's most probable tokens at this position; `sampler_prob` equals `prob`, since nothing is drawn."""
    others_prob: Finite | None = None
    """Probability of all other tokens together; None if prompt logprobs are off."""


class PromptOpened(Record, frozen=True):
    """A prompt was encoded and added to the token tree; the prefill begins."""

    text: str
    """The encoded text, chat template included."""
    chat: bool
    tokens: tuple[PromptToken, ...]
    """The tokens without readings, which follow as `PromptReadings`; tokens of earlier prompts keep their nodes."""
    echo: bool
    """True if prompt logprobs are computed."""
    notes: tuple[str, ...] = ()
    parent: Count = 0
    """Node before the first token: the root, or the end of the completion that the prompt follows."""
    held: Count = 0
    """Number of tokens of the path that are already in the cache and don't run again."""
    messages: tuple[Message, ...] = ()
    """The whole conversation, as the chat template gets it; empty for raw text."""
    options: ChatOptions = NO_OPTIONS
    """The other values that the template gets."""
    new_tree: bool = True
    """True for the first prompt of a tree."""
    segments: PromptSegments = NO_SEGMENTS
    """Segments of the prompt: the role that each token belongs to."""


class PrefillChunk(Record, frozen=True):
    """One chunk of the prompt ran through the model."""

    done: Count
    total: Count
    ms: Finite
    """Time of the forward pass, until the caches are evaluated, as in mlx-lm."""
    kv: KVReading
    cold: bool = False
    """True for the model's first chunk after loading, which includes one-time work; rates leave it out."""


class PromptReadings(Record, frozen=True):
    """Prompt logprobs of some tokens of a prompt, computed without delaying the first token."""

    tokens: tuple[PromptToken, ...]
    ms: Finite
    """Time of the output layer and of the readings; not part of TTFT."""
    left: Count
    """Number of tokens whose readings still follow."""


class Prefilled(Record, frozen=True):
    """The whole prompt is in the cache and the first distribution is known."""

    text: str
    tokens: tuple[PromptToken, ...]
    """The prompt's tokens without readings, which follow as `PromptReadings`."""
    next: Distribution
    kv: KVReading
    memory: Memory
    ttft_ms: Finite
    """Time to first token: trimming the cache to the shared beginning, the remaining forward passes and the first draw,
    without prompt logprobs."""
    prompt_tps: Finite
    """Prefill tokens per second, without chunks of a cold start; 0 if there are no others."""
    kept: Count = 0
    """Number of tokens that stayed in the cache, shared with the previous path."""
    restored: Count = 0
    """Number of tokens whose KV was restored from memory."""
    restored_bytes: Count = 0
    """Bytes of KV restored from memory."""
    note: str = ""
    """Reason why shared tokens ran through the model again; empty if none did."""
    cold: bool = False
    """True if `ttft_ms` includes a cold start: the model's first chunk or first single token after loading."""
    unread: Count = 0
    """Number of tokens whose `PromptReadings` follow."""


AS_BEFORE = Distribution(-1, -1, NO_CANDIDATES, 0.0, 0.0, 0, 0.0, 0.0, (), -1, None, None, None, 0)
"""Value of `Step.choice` in a file if the choice equals the last distribution of the parent."""


class Step(Record, frozen=True, omit_defaults=True):
    """One token was taken and ran through the model."""

    index: Count
    """Index among the decoded tokens of the path, from 0; prompts and user turns don't count."""
    position: Count
    """Position in the context, including the prompt, from 0."""
    node: Count
    parent: Count
    id: Count
    text: str
    """Characters that this token completes; concatenated over the steps they are the text."""
    raw: bytes
    pending: bytes
    """Bytes of an unfinished character, which the next token may complete."""
    special: bool
    origin: Origin
    logprob: float
    prob: Finite
    sampler_prob: Finite
    rank: Count
    surprisal_bits: float
    next: Distribution
    """Distribution after the token."""
    kv: KVReading
    ms: StepTimes
    memory: Memory
    choice: Distribution = AS_BEFORE
    """Distribution that the token was taken from."""


class Resampled(Record, frozen=True):
    """New distribution after the last token, for other settings or a re-roll, without a forward pass."""

    next: Distribution


FinishReason = Literal["eos", "stop", "length", "cancelled", "grammar"]


class Finished(Record, frozen=True):
    """A stop was reached. Stepping past it is possible, except at the end of the context window."""

    node: Count
    reason: FinishReason
    detail: str
    """Cause in words: `<|im_end|>`, the stop string, `100 tokens`, `context window of 512 tokens`, the grammar."""


class Restoring(Record, frozen=True):
    """Progress of running a restored path through the model."""

    lasting: ClassVar[bool] = False
    done: Count
    total: Count
    """Number of tokens of the path."""


class Restored(Record, frozen=True):
    """The tree of a recorded session was rebuilt, and the cache contains the path to one of its nodes."""

    node: Count
    tokens: Count
    """Number of tokens of the path to the node."""
    logprobs: tuple[float, ...]
    """Logprobs of the path's last tokens as computed now, in order, to compare with the recorded ones."""
    next: Distribution
    kv: KVReading
    memory: Memory
    ms: Finite


# ---- the sampler -----------------------------------------------------------------------------------


class Explain(Interleavable, frozen=True):
    """Explain the sampler stage by stage after a node, from cached logits; answered by `Explained`.

    It is also answered between the steps of a run.
    """

    node: Count
    """Node before the token in question; the distribution after this node is explained."""
    settings: Settings | None = None
    """Other settings to try with the same draw; None for the last ones that the session used at the node."""
    reroll: Count = 0
    """Number of repeats of the draw, from the `Distribution` that the token was taken from: another token after the
    same node may come from another draw."""
    also: tuple[Count, ...] = ()
    """Ids of tokens to list in addition to the most probable ones, such as the one taken."""


class WhatIf(Interleavable, frozen=True):
    """Compute the picks under other settings with the same draws at each step up to a node.

    Answered by `WhatIfAnswered`, also between the steps of a run.
    """

    settings: Settings
    tip: Count
    """Last node of the path."""


class StageColumn(Struct, frozen=True):
    """The candidates of one step after one stage of the sampler."""

    name: str
    kept: Count
    """Number of tokens of the vocabulary that are left after the stage."""
    removed_mass: Finite
    unit: Literal["logit", "prob"]
    """Unit of the values: logits after a stage that changes them, probabilities of the tokens left after a filter."""
    values: tuple[float | None, ...]
    """Value of each candidate, in order; None for a removed candidate."""


class Explained(Record, frozen=True):
    """The sampler's distribution after one node, stage by stage, from cached logits."""

    node: Count
    logits: tuple[float, ...]
    """The model's own logits, one for each candidate of `next`, in the same order."""
    columns: tuple[StageColumn, ...]
    """The stages that ran, in order."""
    earlier: tuple[tuple[Count, ...], ...]
    """Earlier positions of each candidate in the context, as far back as the penalties reach."""
    next: Distribution
    """The distribution under the requested settings, with the same draw."""
    used: bool
    """True if these are the last settings that the session used at the node."""
    model: str = ""
    """Title of the second model if its distribution is explained; empty for the session's model."""


class WhatIfStep(Struct, frozen=True):
    """The token that the same draw would have picked at one step of the path under other settings."""

    node: Count
    """Node of the token that the step took."""
    picked: Count
    """Id of the token picked under the other settings."""
    text: str
    same: bool
    """True if this is the token that the step took."""


class WhatIfAnswered(Record, frozen=True):
    """The steps of a path under other settings, each after the unchanged path before it."""

    lasting: ClassVar[bool] = False
    tip: Count
    """Last node of the path."""
    steps: tuple[WhatIfStep, ...]
    """Steps with cached logits, in the path's order."""
    dropped: tuple[Count, ...]
    """Nodes of steps with logits that were dropped to stay within the memory limit; `Recall` computes them again."""
    ms: Finite


# ---- runs and look-ahead ---------------------------------------------------------------------------


class Run(Stoppable, frozen=True):
    """Take steps until a stop, a breakpoint or a cancel."""

    pace: Finite | None = None
    """Maximum number of steps per second; None for no limit."""
    until: Breakpoints | None = None
    """Breakpoints in addition to the settings' own stops; answered by `BreakpointHit` if one stops the run."""
    over_sure: bool = False
    """True to also stop if the next token is not sure (`engine.breakpoints.UNSURE`)."""
    goes_on: bool = False
    """True to continue the last run, cancelled to change its pace, with its breakpoints and their counts."""


class LookAhead(Command, frozen=True):
    """Decode greedily after some candidates; answered by `LookedAhead` records.

    The session doesn't move and nothing is added to its tree.
    """

    node: Count
    """Node before the candidates."""
    ids: tuple[Count, ...]
    """Token ids of the candidates."""
    tokens: Count = 8
    """Number of tokens to generate after each candidate."""


class AheadLine(Struct, frozen=True):
    """One candidate, and the tokens that greedy decoding would take after it."""

    id: Count
    """Id of the candidate."""
    ids: tuple[Count, ...]
    """Ids of the tokens after it, including an end-of-sequence token."""
    text: str
    """Characters that these tokens complete, after those of the candidate and without an end-of-sequence token."""
    logprob: float
    """Sum of the logprobs of the candidate and all tokens after it: float32 log-softmax of the model's own logits."""
    ended: bool
    """True if the line ended with an end-of-sequence token or a complete text of the grammar."""


class LookedAhead(Record, frozen=True):
    """State of a look-ahead, emitted after every token with all lines so far."""

    node: Count
    """Node before the candidates."""
    lines: tuple[AheadLine, ...]
    """Lines in the order of the command's candidates."""
    tokens: Count
    """Number of tokens that each line will have unless it ends before."""
    last: bool
    ms: Finite
    """Time since the look-ahead began."""
    note: str = ""
    """Sentences on lines that run one after another or are shorter, or on a recomputed path; otherwise empty."""


class BreakpointHit(Record, frozen=True):
    """A breakpoint stopped a run."""

    node: Count
    """The session's current node."""
    conditions: tuple[str, ...]
    """Conditions that were met, each as a sentence with its values: `entropy 3.21 bits is above 3.00`."""


# ---- marks of the user -----------------------------------------------------------------------------


class Marked(Record, frozen=True):
    """The user's marks of one node, replacing earlier ones; the node has no marks if all fields have their defaults."""

    node: Count
    name: str = ""
    """Name of the branch that begins with this node."""
    bookmarked: bool = False
    note: str = ""
    """Note for the user."""
    caption: str = ""
    """Caption for an audience, shown when a replay arrives here."""
    tool: str = ""
    """Id of the panel or tool that the replay opens with the caption; empty for none."""


class Deleted(Record, frozen=True):
    """A node and all nodes below it are hidden. They stay in the engine's tree, so that the user can undo this."""

    node: Count


class Undeleted(Record, frozen=True):
    """A deletion was undone."""

    node: Count


class Undone(Record, frozen=True):
    """The user's last change was undone; the records for the affected marks, deletion or settings follow."""

    redo: bool = False
    """True if the last undone change was redone instead."""


class BeatReached(Record, frozen=True):
    """A lesson reached one of its cards. A replay of the lesson steps from one of these records to the next."""

    lesson: str
    """Id of the lesson."""
    beat: Count
    """Index of the card, from 0."""
    done: bool
    """True after the card's task is done; False when the card begins."""


class QuestionAsked(Record, frozen=True):
    """A command of a lesson; its records follow, up to its `Ended`.

    A replay answers the same command with the same records.
    """

    command: str
    """The command in JSON, as `engine.recording.question` writes it."""
