"""Commands and records of batches and of many draws."""

from __future__ import annotations

from typing import ClassVar, Literal

from engine.frozen import frozen
from engine.protocol.base import Command, Record
from engine.protocol.floats import Endless
from engine.protocol.steps import NO_OPTIONS, ChatOptions, Distribution
from engine.settings import Settings


@frozen
class LanePrompt:
    """A prompt of a batch."""

    text: str
    chat: bool | None = False
    """As for `Prefill`."""
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
    """True if lanes that ended keep their rows, and lanes that wait join only when all have ended."""
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


LaneEnd = Literal["eos", "stop", "length", "cancelled", "grammar", "removed"]
"""Why a lane ended: as a completion (`FinishReason`), or a person took it out."""


@frozen
class LaneOpened:
    """A prompt that has a lane, or waits for one."""

    lane: int
    """Number of the lane, from 0."""
    text: str
    """The prompt as encoded."""
    ids: tuple[int, ...]
    seed: int
    reroll: int
    """The re-roll count of all its draws: draw k of one prompt is what k re-rolls of each token give."""
    notes: tuple[str, ...] = ()
    """Requests that could not be met."""
    settings: tuple[str, ...] = ()
    """Settings, besides the seed, that are other than the session's: `temperature 0.7`."""


@frozen
class LaneKV:
    """The part of one lane in the KV caches of a batch."""

    tokens: int
    """Tokens of the lane that went through the model."""
    columns: int
    """Columns of the widest cache that each row has, padding included."""
    used_bytes: int
    """Bytes that hold tokens or state of the lane."""
    padding_bytes: int
    """Bytes of its columns that hold padding."""


@frozen
class LaneToken:
    """A lane grew by a token."""

    lane: int
    index: int
    """Among the lane's decoded tokens, from 0."""
    position: int
    """In the lane's context."""
    id: int
    text: str
    """The characters that it finished."""
    raw: bytes
    special: bool
    logprob: Endless
    """float32 log-softmax of the model's own logits, before any penalty or filter."""
    prob: float
    sampler_prob: float
    rank: int
    kv: LaneKV | None
    """After it went through the model; None where it ended the lane and the row ended with it."""
    next: Distribution | None
    """After it; None where it ended the lane. Its node is a number in the batch's own tree."""


@frozen
class BatchTotals:
    """Sums over a batch so far. A row-step is one row in one forward, of one column in prefill."""

    prompt_tokens: int = 0
    """Row-steps of prefill that ran a token."""
    padding: int = 0
    """Row-steps of prefill that ran padding."""
    tokens: int = 0
    """Decoded tokens, of all lanes."""
    forwards: int = 0
    """Forwards of decode."""
    rows: int = 0
    """Row-steps of decode that ran a lane's token."""
    rows_after_end: int = 0
    """Row-steps of decode in lanes that had ended."""
    prefill_ms: float = 0.0
    decode_ms: float = 0.0
    """With sampling and readings."""

    @property
    def ms(self) -> float:
        """Of all work."""
        return self.prefill_ms + self.decode_ms


@frozen
class BatchOpened(Record):
    """A batch began."""

    lanes: tuple[LaneOpened, ...]
    size: int
    """Lanes at once; the others wait."""
    static: bool
    """True if lanes that ended keep their rows until all have ended."""
    node: int | None = None
    """The session's node that all lanes go on from, whose KV they share; None where each has a prompt of its own."""
    note: str = ""
    """Why the lanes run through the model one after another, empty if they run at once."""


@frozen
class LanesAdded(Record):
    """More prompts, for a batch that was opened."""

    lanes: tuple[LaneOpened, ...]


@frozen
class LanesJoined(Record):
    """Lanes got rows, and their prefill begins."""

    lanes: tuple[int, ...]
    padding: tuple[int, ...]
    """Columns of padding on the left of each prompt, to the length of the longest."""


@frozen
class LanesPrefilled(Record):
    """A chunk of the prompts of some lanes went through the model."""

    lanes: tuple[int, ...]
    done: int
    """Columns so far."""
    columns: int
    """Of all."""
    tokens: int
    """Of this chunk."""
    padding: int
    """Row-steps of this chunk that ran padding."""
    ms: float


@frozen
class LaneStarted(Record):
    """A lane's prompt is read, and its first token is drawn."""

    lane: int
    next: Distribution
    kv: LaneKV
    ms: float
    """Since the batch began, without its pauses."""


@frozen
class BatchStep(Record):
    """Every live lane grew by a token: one forward, or one a lane."""

    step: int
    """From 1."""
    tokens: tuple[LaneToken, ...]
    rows: int
    """Of the forward, those of ended lanes too; 0 where no lane was left to run."""
    forward_ms: float
    ms: float
    """With sampling and readings."""
    totals: BatchTotals


@frozen
class LaneEnded(Record):
    """A lane has ended."""

    lane: int
    reason: LaneEnd
    detail: str
    tokens: int
    """Decoded."""
    ms: float
    """Since the batch began, without its pauses."""


@frozen
class BatchEnded(Record):
    """No lane is live and none waits; another may be added."""

    totals: BatchTotals


@frozen
class LaneDifference:
    """The first token in which a lane differs from its prompt alone."""

    index: int
    """Among the decoded tokens."""
    batched: int
    """Id in the batch; -1 where the lane had ended."""
    alone: int
    """Id alone; -1 where it had ended."""
    batched_text: str
    alone_text: str
    gap: float
    """Of the two tokens' logprobs, alone: at greedy below twice the rounding where rounding alone tells them apart."""


@frozen
class LaneCompared(Record):
    """A lane beside its prompt run alone."""

    lane: int
    tokens: int
    """Decoded alone."""
    difference: LaneDifference | None
    """None where all ids are equal."""
    largest: float
    """Difference of a candidate's logprob at most, over all tokens up to the first that differs."""
    rounding: float
    """The most that rounding of both runs' logits may change there: twice the difference of a logit that is stated."""
    ms: float
    """Alone, of all work."""

    @property
    def within(self) -> bool:
        """True if rounding explains all differences of the numbers."""
        return self.largest <= self.rounding


@frozen
class BatchCompared(Record):
    """All lanes at once against one after the other, both measured in this process."""

    lanes: int
    tokens: int
    """Decoded in the batch."""
    together_ms: float
    alone_tokens: int
    alone_ms: float


@frozen
class DrawnToken:
    """How often one token came first, beside the probability that the sampler states."""

    id: int
    text: str
    prob: float
    """Stated."""
    count: int
    low: float
    """Wilson's interval of 95 % around the frequency begins here ..."""
    high: float
    """... and ends here."""


@frozen
class DrawsCounted(Record):
    """The first tokens of many draws after one node, against the sampler's distribution."""

    node: int
    draws: int
    outcomes: tuple[DrawnToken, ...]
    """Tokens that came or that the sampler makes likely, most probable first."""
    others: int
    """Draws of tokens that are not listed."""
    others_prob: float
    chi_square: float
    """Pearson's, over the cells of five or more expected draws and one of all others."""
    degrees: int
    """Of freedom; 0 where there is only one cell."""
    p_value: float
    """Chance of such a chi-square or a larger one, if the draws follow the stated distribution."""
    tossed: bool = False
    """True if XTC tosses a coin for each draw: the stated probabilities are the mean of both outcomes."""
