"""Batches, many draws, beam searches and speculative decoding."""

from __future__ import annotations

from typing import ClassVar, Literal

from msgspec import Struct

from engine.breakpoints import Breakpoints
from engine.protocol.base import Command, Count, Finite, Record
from engine.protocol.steps import NO_OPTIONS, ChatOptions, Distribution
from engine.settings import BeamSettings, Settings, SpeculationSettings

# ---- batches and draws -----------------------------------------------------------------------------


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


# ---- beam search -----------------------------------------------------------------------------------


class SearchBeams(Command, frozen=True):
    """Search with beams from the current node; answered by `BeamOpened`, `BeamStep` records and `BeamEnded`.

    A search that was cancelled, or paused after `steps`, waits for `GoOnBeams` until the next prompt, model or search.
    """

    settings: BeamSettings
    steps: Count | None = None
    """Steps to take, None for all."""


class GoOnBeams(Command, frozen=True):
    """Continue the paused search; answered by `BeamStep` records and, at its end, `BeamEnded`."""

    steps: Count | None = None
    """Steps to take, None for all."""


class Beam(Struct, frozen=True):
    """A live hypothesis of a beam search, after one of its steps."""

    node: Count
    parent: Count
    """Node of the beam that it grew from."""
    place: Count
    """Among the live beams of its step, 0 the best."""
    parent_place: Count
    """Of the beam that it grew from, among those of the step before."""
    id: Count
    """The token that it grew by."""
    text: str
    """The characters that this token finished."""
    logprob: float
    """Of this token: float32 log-softmax of the model's own logits, no sampler."""
    total_logprob: float
    """Of all tokens since the search began."""
    score: float
    """total_logprob / length ** length_penalty."""
    length: Count
    """Tokens since the search began."""


class Hypothesis(Struct, frozen=True):
    """A continuation that a beam search finished, or greedy decoding."""

    node: Count
    """Its last token's."""
    ids: tuple[Count, ...]
    """Its tokens, an end-of-sequence token included."""
    text: str
    """Without the end-of-sequence token."""
    logprob: float
    """Of all its tokens."""
    score: float
    length: Count
    reason: Literal["eos", "length"]
    end: str = ""
    """How its end-of-sequence token is written: a model may have several, which end the same text."""


class BeamOpened(Record, frozen=True):
    """A beam search began."""

    node: Count
    """The session's current node, before and after."""
    width: Count
    length_penalty: Finite
    early_stopping: bool
    max_tokens: Count
    """The requested number, or fewer where the context window ends before."""
    note: str = ""
    """Why the beams run through the model one after another, empty if they run at once."""


class BeamStep(Record, frozen=True):
    """Every live beam grew by a token."""

    step: Count
    """From 1."""
    live: tuple[Beam, ...]
    """Best first; empty once the search is over and only greedy decoding continues."""
    pruned: tuple[Beam, ...]
    """Beams of the step before that no live beam or hypothesis extends."""
    finished: tuple[Hypothesis, ...]
    """The best so far, at most as many as the width, best first."""
    greedy: Beam | None
    """The tip of greedy decoding; its place is -1 unless it is a live beam. None once it ended before."""
    rows: Count
    """Sequences that the model ran for the next step."""
    ms: Finite
    last: bool
    """True if `BeamEnded` follows."""


class BeamEnded(Record, frozen=True):
    """A beam search is over."""

    ranking: tuple[Hypothesis, ...]
    """Best score first."""
    greedy: Hypothesis
    """The result of greedy decoding; with the same node where the ranking has it, too."""
    left: tuple[Beam, ...]
    """Beams that were live when the finished ones were good enough."""
    steps: Count
    """Of the search; greedy decoding may have continued longer."""
    reason: Literal["finished", "length"]
    """`finished` where enough hypotheses did, `length` where max tokens were reached."""
    ms: Finite


# ---- speculative decoding --------------------------------------------------------------------------


class LoadDraft(Command, frozen=True):
    """Have a draft ready; answered by `DraftLoading` records and `DraftReady`."""

    over_ranks: ClassVar[bool] = False
    stoppable: ClassVar[bool] = True
    settings: SpeculationSettings


class TakeRound(Command, frozen=True):
    """Take a round of speculative decoding; answered by a `Step` a token, and `DraftRound`."""

    over_ranks: ClassVar[bool] = False
    stoppable: ClassVar[bool] = True
    settings: SpeculationSettings
    inside: bool = False
    """Only the next stage of the round: propose, verify, take. Each is answered by a `DraftRound`."""


class RunRounds(Command, frozen=True):
    """Take rounds until a stop, a breakpoint or a cancel, each of which holds inside a round, too."""

    over_ranks: ClassVar[bool] = False
    stoppable: ClassVar[bool] = True
    settings: SpeculationSettings
    until: Breakpoints | None = None
    """As for `Run`."""
    over_sure: bool = False
    """As for `Run`."""
    plain: Count = 0
    """Plain steps to take first: what the rounds are measured against."""


class VerifySpeculation(Command, frozen=True):
    """Decode what follows a node again by plain steps, in separate caches; answered by `SpeculationVerified`."""

    over_ranks: ClassVar[bool] = False
    stoppable: ClassVar[bool] = True
    node: Count
    """On the path to the current node, which ends the stretch."""


DraftFate = Literal["drafted", "accepted", "refused", "unseen"]
"""`drafted`: not verified yet. `refused`: the sampler took another token. `unseen`: behind a refused token or a stop,
so that nobody looked at it."""
RoundStage = Literal["proposed", "verified", "taken"]


class DraftLoading(Record, frozen=True):
    """The draft's model is being loaded."""

    lasting: ClassVar[bool] = False
    name: str
    done: Count
    total: Count
    """0 where that is not known."""


class DraftReady(Record, frozen=True):
    """A draft is ready to propose tokens."""

    settings: SpeculationSettings
    weight_bytes: Count
    """Of its model; 0 without one."""
    ms: Finite
    """Of loading it; 0 where it was there."""
    note: str = ""


class AcceptanceRates(Struct, frozen=True):
    """The probability that a drafted token is accepted, before it is drawn, by three rules.

    Each is computed from the two distributions after the same path; nothing ran again. See `engine.decoding.
    speculative.rules`.
    """

    position_draw: Finite
    """The rule in force: draft and target draw with the random number of the position."""
    rejection: Finite
    """Accept with probability min(1, p/q), else draw from the residual (Leviathan et al. 2023)."""
    match: Finite
    """The draft samples a token, the target another one: accept where they are equal (mlx_lm)."""


class DraftToken(Struct, frozen=True):
    """One token of a draft."""

    id: Count
    text: str
    """The characters that it would finish; empty while they are unfinished."""
    raw: bytes
    fate: DraftFate
    draft_prob: Finite | None = None
    """The draft's own probability of it, after the sampler; None where the draft has no probabilities."""
    target_prob: Finite | None = None
    """The probability with which the session's sampler draws it; None if nobody looked."""
    rank: Count | None = None
    """By the model's own logits, 1 for the most probable; None where nobody looked."""
    rates: AcceptanceRates | None = None
    """None where nobody looked."""


class TakenInstead(Struct, frozen=True):
    """The token that the sampler took in the place of the refused one: the next round, or step, begins with it."""

    id: Count
    text: str
    raw: bytes
    draft_prob: Finite | None
    target_prob: Finite


class DraftRound(Record, frozen=True):
    """One round of speculative decoding: tokens were drafted, verified in one forward, and taken as far as they hold.

    It follows the `Step` records of its tokens. A round that is gone through in stages has a record for each.
    """

    node: Count
    """The node that it began at."""
    end: Count
    """The node of the last token taken; `node` while none is."""
    stage: RoundStage
    settings: SpeculationSettings
    first: Count
    """Id of the token that was known before: the sampler had picked it after `node`."""
    first_text: str
    drafts: tuple[DraftToken, ...]
    """Empty where the draft proposed nothing: then the round is a plain step."""
    instead: TakenInstead | None
    """None where no draft was refused."""
    matched: Count
    """Of a lookup: tokens at the end of the text that stood there before; 0 for models."""
    taken: Count
    """Tokens that the round added: the first and the accepted ones."""
    verified: Count
    """Tokens of the forward that verified them."""
    draft_ms: Finite
    verify_ms: Finite
    """The forward, and the sampler at each of its tokens as far as they held."""
    take_ms: Finite
    """Nodes, records and readings of the tokens taken, and the removal of the others' KV."""
    ms: Finite
    """All of it, without `rates_ms`."""
    rates_ms: Finite
    """For the acceptance rates, which plain speculation doesn't compute."""
    stalled_ms: Finite
    """Garbage collection and drawing of the screen meanwhile, which are no part of the times above."""
    note: str = ""
    """Why the verification costs more here, if it does."""


class SpeculationVerified(Record, frozen=True):
    """A stretch of text was decoded again by plain steps, in separate caches."""

    begin: Count
    """The node before the stretch."""
    end: Count
    """Its last node."""
    tokens: Count
    """Of the stretch, as far as they were compared."""
    chosen: Count
    """Tokens that a person chose, which no sampler took: they are run and not compared."""
    differs: Count | None
    """The first node with another token than a plain step takes; None where all are equal."""
    plain: Count | None
    """Id of the token that a plain step takes there; None where all are equal."""
    plain_text: str
    difference: float
    """The largest absolute difference of the logits, over all nodes whose logits are kept."""
    plain_ms: Finite
    """Of a plain step here: forward and sampler, the median."""
