"""Commands and records of batches and of many draws."""

from __future__ import annotations

from typing import ClassVar, Literal

from msgspec import Struct

from engine.protocol.base import Command, Record
from engine.protocol.numbers import Count, Finite
from engine.protocol.steps import NO_OPTIONS, ChatOptions, Distribution
from engine.settings import Settings


class LanePrompt(Struct, frozen=True):
    """A prompt of a batch."""

    text: str
    chat: bool | None = False
    """As for `Prefill`."""
    system: str | None = None
    options: ChatOptions = NO_OPTIONS
    """What else the chat template gets."""
    settings: Settings | None = None
    """Of its sampler and its stops; None for the session's."""


class StartBatch(Command, frozen=True):
    """Begin a batch, and prefill the lanes that begin; the session doesn't change.

    Answered by `BatchOpened`, and as `AdvanceBatch`. It ends the batch before.
    """

    over_ranks: ClassVar[bool] = False
    prompts: tuple[LanePrompt, ...]
    size: Count = 32
    """Lanes at once; the others wait until one has ended, or all of them."""
    static: bool = False
    """True if lanes that ended keep their rows, and lanes that wait join only when all have ended."""
    steps: Count | None = None
    """Steps to take, None for all."""


class AdvanceBatch(Command, frozen=True):
    """Continue the batch; a cancel pauses it.

    Answered by `LanesJoined`, `LanesPrefilled`, `LaneStarted`, `BatchStep` and `LaneEnded` records, and at the end by
    `BatchEnded`.
    """

    over_ranks: ClassVar[bool] = False
    steps: Count | None = None
    """Steps to take, None for all."""


class AddLanes(Command, frozen=True):
    """Add prompts to the batch, to begin with its next step where there is room; answered by `LanesAdded`."""

    over_ranks: ClassVar[bool] = False
    aside: ClassVar[bool] = True
    prompts: tuple[LanePrompt, ...]


class RemoveLane(Command, frozen=True):
    """Take a lane out of the batch, or out of those that wait; answered by `LaneEnded`."""

    over_ranks: ClassVar[bool] = False
    aside: ClassVar[bool] = True
    lane: Count


class CompareBatch(Command, frozen=True):
    """Run the prompt of each lane alone, once all have ended.

    Answered by `Measuring`, `LaneCompared` and one `BatchCompared`.
    """

    over_ranks: ClassVar[bool] = False


class DrawMany(Command, frozen=True):
    """Draw many continuations after a node, over one copy of its KV; the session doesn't change.

    Answered as `StartBatch`, with one `DrawsCounted` after the first tokens. Draw k is the one that k re-rolls of each
    token give. It ends the batch before.
    """

    over_ranks: ClassVar[bool] = False
    count: Count
    node: Count | None = None
    """None for the current one."""
    tokens: Count = 1
    """Of each continuation at most; with 1 the model runs nothing."""
    size: Count = 32
    """Continuations at once."""


LaneEnd = Literal["eos", "stop", "length", "cancelled", "grammar", "removed"]
"""Why a lane ended: as a completion (`FinishReason`), or a person took it out."""


class LaneOpened(Struct, frozen=True):
    """A prompt that has a lane, or waits for one."""

    lane: Count
    """Number of the lane, from 0."""
    text: str
    """The prompt as encoded."""
    ids: tuple[Count, ...]
    seed: Count
    reroll: Count
    """The re-roll count of all its draws: draw k of one prompt is what k re-rolls of each token give."""
    notes: tuple[str, ...] = ()
    """Requests that could not be met."""
    settings: tuple[str, ...] = ()
    """Settings, besides the seed, that are other than the session's: `temperature 0.7`."""


class LaneKV(Struct, frozen=True):
    """The part of one lane in the KV caches of a batch."""

    tokens: Count
    """Tokens of the lane that went through the model."""
    columns: Count
    """Columns of the widest cache that each row has, padding included."""
    used_bytes: Count
    """Bytes that hold tokens or state of the lane."""
    padding_bytes: Count
    """Bytes of its columns that hold padding."""


class LaneToken(Struct, frozen=True):
    """A lane grew by a token."""

    lane: Count
    index: Count
    """Among the lane's decoded tokens, from 0."""
    position: Count
    """In the lane's context."""
    id: Count
    text: str
    """The characters that it finished."""
    raw: bytes
    special: bool
    logprob: float
    """float32 log-softmax of the model's own logits, before any penalty or filter."""
    prob: Finite
    sampler_prob: Finite
    rank: Count
    kv: LaneKV | None
    """After it went through the model; None where it ended the lane and the row ended with it."""
    next: Distribution | None
    """After it; None where it ended the lane. Its node is a number in the batch's own tree."""


class BatchTotals(Struct, frozen=True):
    """Sums over a batch so far. A row-step is one row in one forward, of one column in prefill."""

    prompt_tokens: Count = 0
    """Row-steps of prefill that ran a token."""
    padding: Count = 0
    """Row-steps of prefill that ran padding."""
    tokens: Count = 0
    """Decoded tokens, of all lanes."""
    forwards: Count = 0
    """Forwards of decode."""
    rows: Count = 0
    """Row-steps of decode that ran a lane's token."""
    rows_after_end: Count = 0
    """Row-steps of decode in lanes that had ended."""
    prefill_ms: Finite = 0.0
    decode_ms: Finite = 0.0
    """With sampling and readings."""

    @property
    def ms(self) -> float:
        """Of all work."""
        return self.prefill_ms + self.decode_ms


class BatchOpened(Record, frozen=True):
    """A batch began."""

    lanes: tuple[LaneOpened, ...]
    size: Count
    """Lanes at once; the others wait."""
    static: bool
    """True if lanes that ended keep their rows until all have ended."""
    node: Count | None = None
    """The session's node that all lanes go on from, whose KV they share; None where each has a prompt of its own."""
    note: str = ""
    """Why the lanes run through the model one after another, empty if they run at once."""


class LanesAdded(Record, frozen=True):
    """More prompts, for a batch that was opened."""

    lanes: tuple[LaneOpened, ...]


class LanesJoined(Record, frozen=True):
    """Lanes got rows, and their prefill begins."""

    lanes: tuple[Count, ...]
    padding: tuple[Count, ...]
    """Columns of padding on the left of each prompt, to the length of the longest."""


class LanesPrefilled(Record, frozen=True):
    """A chunk of the prompts of some lanes went through the model."""

    lanes: tuple[Count, ...]
    done: Count
    """Columns so far."""
    columns: Count
    """Of all."""
    tokens: Count
    """Of this chunk."""
    padding: Count
    """Row-steps of this chunk that ran padding."""
    ms: Finite


class LaneStarted(Record, frozen=True):
    """A lane's prompt is read, and its first token is drawn."""

    lane: Count
    next: Distribution
    kv: LaneKV
    ms: Finite
    """Since the batch began, without its pauses."""


class BatchStep(Record, frozen=True):
    """Every live lane grew by a token: one forward, or one a lane."""

    step: Count
    """From 1."""
    tokens: tuple[LaneToken, ...]
    rows: Count
    """Of the forward, those of ended lanes too; 0 where no lane was left to run."""
    forward_ms: Finite
    ms: Finite
    """With sampling and readings."""
    totals: BatchTotals


class LaneEnded(Record, frozen=True):
    """A lane has ended."""

    lane: Count
    reason: LaneEnd
    detail: str
    tokens: Count
    """Decoded."""
    ms: Finite
    """Since the batch began, without its pauses."""


class BatchEnded(Record, frozen=True):
    """No lane is live and none waits; another may be added."""

    totals: BatchTotals


class LaneDifference(Struct, frozen=True):
    """The first token in which a lane differs from its prompt alone."""

    index: Count
    """Among the decoded tokens."""
    batched: Count
    """Id in the batch; -1 where the lane had ended."""
    alone: Count
    """Id alone; -1 where it had ended."""
    batched_text: str
    alone_text: str
    gap: Finite
    """Of the two tokens' logprobs, alone: at greedy below twice the rounding where rounding alone tells them apart."""


class LaneCompared(Record, frozen=True):
    """A lane beside its prompt run alone."""

    lane: Count
    tokens: Count
    """Decoded alone."""
    difference: LaneDifference | None
    """None where all ids are equal."""
    largest: Finite
    """Difference of a candidate's logprob at most, over all tokens up to the first that differs."""
    rounding: Finite
    """The most that rounding of both runs' logits may change there: twice the difference of a logit that is stated."""
    ms: Finite
    """Alone, of all work."""

    @property
    def within(self) -> bool:
        """True if rounding explains all differences of the numbers."""
        return self.largest <= self.rounding


class BatchCompared(Record, frozen=True):
    """All lanes at once against one after the other, both measured in this process."""

    lanes: Count
    tokens: Count
    """Decoded in the batch."""
    together_ms: Finite
    alone_tokens: Count
    alone_ms: Finite


class DrawnToken(Struct, frozen=True):
    """How often one token came first, beside the probability that the sampler states."""

    id: Count
    text: str
    prob: Finite
    """Stated."""
    count: Count
    low: Finite
    """Wilson's interval of 95 % around the frequency begins here ..."""
    high: Finite
    """... and ends here."""


class DrawsCounted(Record, frozen=True):
    """The first tokens of many draws after one node, against the sampler's distribution."""

    node: Count
    draws: Count
    outcomes: tuple[DrawnToken, ...]
    """Tokens that came or that the sampler makes likely, most probable first."""
    others: Count
    """Draws of tokens that are not listed."""
    others_prob: Finite
    chi_square: Finite
    """Pearson's, over the cells of five or more expected draws and one of all others."""
    degrees: Count
    """Of freedom; 0 where there is only one cell."""
    p_value: Finite
    """Chance of such a chi-square or a larger one, if the draws follow the stated distribution."""
    tossed: bool = False
    """True if XTC tosses a coin for each draw: the stated probabilities are the mean of both outcomes."""
