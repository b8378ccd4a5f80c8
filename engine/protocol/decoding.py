"""Batches, repeated draws, beam search and speculative decoding."""

from __future__ import annotations

from typing import ClassVar, Literal

from msgspec import Struct

from engine.breakpoints import Breakpoints
from engine.protocol.base import Command, Count, Finite, OneProcess, Record
from engine.protocol.steps import NO_OPTIONS, ChatOptions, Distribution
from engine.settings import BeamSettings, Settings, SpeculationSettings

# ---- batches and draws -----------------------------------------------------------------------------


class LanePrompt(Struct, frozen=True):
    """A prompt of a batch."""

    text: str
    chat: bool | None = False
    """True to fill the chat template, with the text as a user's message; None for the model's default, as in
    `Prefill`."""
    system: str | None = None
    options: ChatOptions = NO_OPTIONS
    """Other values that the chat template gets."""
    settings: Settings | None = None
    """Settings of the lane's sampler and stops; None for the session's."""


class StartBatch(OneProcess, frozen=True):
    """Start a batch and prefill its first lanes; the session doesn't change.

    Answered by `BatchOpened`, and then like `AdvanceBatch`. An earlier batch ends.
    """

    prompts: tuple[LanePrompt, ...]
    size: Count = 32
    """Number of lanes that run at once; the others wait until one has ended, or all in a static batch."""
    static: bool = False
    """True for a static batch: ended lanes keep their rows, and waiting lanes join only when all have ended. No effect
    if the lanes run one after another."""
    steps: Count | None = None
    """Number of steps to take; None for all."""


class AdvanceBatch(OneProcess, frozen=True):
    """Continue the batch; a cancel pauses it.

    Answered by `LanesJoined`, `LanesPrefilled`, `LaneStarted`, `BatchStep` and `LaneEnded` records, and at the end by
    `BatchEnded`.
    """

    steps: Count | None = None
    """Number of steps to take; None for all."""


class AddLanes(OneProcess, frozen=True):
    """Add prompts to the batch, which start as soon as rows are free; answered by `LanesAdded`."""

    interleavable: ClassVar[bool] = True
    prompts: tuple[LanePrompt, ...]


class RemoveLane(OneProcess, frozen=True):
    """Remove a running or waiting lane from the batch; answered by `LaneEnded`."""

    interleavable: ClassVar[bool] = True
    lane: Count


class CompareBatch(OneProcess, frozen=True):
    """Run the prompt of each lane alone, after all have ended; removed lanes are left out.

    Answered by `Measuring` and `LaneCompared` records and one `BatchCompared`.
    """


class DrawMany(OneProcess, frozen=True):
    """Draw many continuations after a node, over one copy of its KV; the session doesn't change.

    Answered by `DrawsCounted`. Continuations of several tokens then run as a batch: answered like `StartBatch`, and an
    earlier batch ends. Draw k is the continuation after k re-rolls of each token.
    """

    count: Count
    node: Count | None = None
    """Node before the continuations; None for the current one."""
    tokens: Count = 1
    """Maximum number of tokens of each continuation; 1 needs only the logits after the node."""
    size: Count = 32
    """Number of continuations that run at once."""


LaneEnd = Literal["eos", "stop", "length", "cancelled", "grammar", "removed"]
"""Reason that a lane ended: as for a completion (`FinishReason`), or `removed` by `RemoveLane`."""


class LaneOpened(Struct, frozen=True):
    """A prompt that has a lane, or waits for one."""

    lane: Count
    """Number of the lane, from 0."""
    text: str
    """The encoded text, chat template included; empty for a draw of `DrawMany`."""
    ids: tuple[Count, ...]
    """Token ids of the prompt; empty for a draw of `DrawMany`."""
    seed: Count
    reroll: Count
    """Re-roll count of all draws of the lane: k for draw k of one prompt."""
    notes: tuple[str, ...] = ()
    """Parts of the request that could not be met."""
    settings: tuple[str, ...] = ()
    """Settings that differ from the session's, except the seed, such as `temperature 0.7`."""


class LaneKV(Struct, frozen=True):
    """One lane's share of the KV caches of a batch."""

    tokens: Count
    """Number of tokens of the lane that ran through the model."""
    columns: Count
    """Number of columns of a row in the widest cache, padding included."""
    used_bytes: Count
    """Bytes of the lane's tokens and states."""
    padding_bytes: Count
    """Bytes of padding in the lane's columns."""


class LaneToken(Struct, frozen=True):
    """One token that was added to a lane."""

    lane: Count
    index: Count
    """Index among the lane's decoded tokens, from 0."""
    position: Count
    """Position in the lane's context, from 0."""
    id: Count
    text: str
    """Characters that the token completes."""
    raw: bytes
    special: bool
    logprob: float
    """float32 log-softmax of the model's own logits, before any penalty or filter."""
    prob: Finite
    sampler_prob: Finite
    rank: Count
    kv: LaneKV | None
    """The lane's KV after the token ran; None if the token ended the lane and its row was dropped."""
    next: Distribution | None
    """Distribution after the token; None if it ended the lane. Its `node` is not in the session's tree but in the
    lane's own, or in a common tree for all draws of `DrawMany`."""


class BatchTotals(Struct, frozen=True):
    """Sums over a batch so far. A row-step is one row in one forward pass, for each column in prefill."""

    prompt_tokens: Count = 0
    """Row-steps of prefill that ran a token."""
    padding: Count = 0
    """Row-steps of prefill that ran padding."""
    tokens: Count = 0
    """Number of decoded tokens of all lanes."""
    forwards: Count = 0
    """Number of forward passes of decode."""
    rows: Count = 0
    """Row-steps of decode that ran a lane's token."""
    rows_after_end: Count = 0
    """Row-steps of decode in lanes that had ended."""
    prefill_ms: Finite = 0.0
    decode_ms: Finite = 0.0
    """Time of decode, including sampling and readings."""

    @property
    def ms(self) -> float:
        """Time of prefill and decode together."""
        return self.prefill_ms + self.decode_ms


class BatchOpened(Record, frozen=True):
    """A batch began."""

    lanes: tuple[LaneOpened, ...]
    size: Count
    """Number of lanes that run at once; the others wait."""
    static: bool
    """Same as in `StartBatch`."""
    node: Count | None = None
    """The session's node that all lanes continue, sharing its KV; None if each lane has its own prompt."""
    note: str = ""
    """Reason why the lanes run one after another, or how their numbers differ; otherwise empty."""


class LanesAdded(Record, frozen=True):
    """Prompts were added to a batch."""

    lanes: tuple[LaneOpened, ...]


class LanesJoined(Record, frozen=True):
    """Lanes received rows, and their prefill begins."""

    lanes: tuple[Count, ...]
    padding: tuple[Count, ...]
    """Columns of padding to the left of each prompt, up to the longest one; 0 if the lanes run one after another."""


class LanesPrefilled(Record, frozen=True):
    """A chunk of the prompts of some lanes ran through the model."""

    lanes: tuple[Count, ...]
    done: Count
    """Number of columns that have run so far, out of `columns`."""
    columns: Count
    """Length of the longest of these prompts, or the sum of all if the lanes run one after another."""
    tokens: Count
    """Row-steps of this chunk that ran a token."""
    padding: Count
    """Row-steps of this chunk that ran padding."""
    ms: Finite


class LaneStarted(Record, frozen=True):
    """A lane's prompt ran through the model, and its first token is drawn."""

    lane: Count
    next: Distribution
    kv: LaneKV
    ms: Finite
    """Time since the batch began, without its pauses."""


class BatchStep(Record, frozen=True):
    """Every live lane received a token: one forward pass for all, or one for each."""

    step: Count
    """Number of the step, from 1."""
    tokens: tuple[LaneToken, ...]
    rows: Count
    """Rows of the forward pass, including those of ended lanes; 0 if no lane was left to run."""
    forward_ms: Finite
    ms: Finite
    """Time of the step, including sampling and readings."""
    totals: BatchTotals


class LaneEnded(Record, frozen=True):
    """A lane has ended."""

    lane: Count
    reason: LaneEnd
    detail: str
    tokens: Count
    """Number of decoded tokens."""
    ms: Finite
    """Time since the batch began, without its pauses."""


class BatchEnded(Record, frozen=True):
    """No lane is live and none waits; more can be added."""

    totals: BatchTotals


class LaneDifference(Struct, frozen=True):
    """The first token that differs between a lane and its prompt run alone."""

    index: Count
    """Index among the decoded tokens, from 0."""
    batched: Count
    """Id of the token in the batch; -1 if the lane had ended."""
    alone: Count
    """Id of the token of the run alone; -1 if it had ended."""
    batched_text: str
    alone_text: str
    gap: Finite
    """Absolute difference of both tokens' logprobs in the run alone; 0 if either had ended. In greedy decoding it is at
    most `LaneCompared.rounding` if rounding alone explains the different token."""


class LaneCompared(Record, frozen=True):
    """Comparison of a lane with its prompt run alone."""

    lane: Count
    tokens: Count
    """Number of tokens that the run alone decoded."""
    difference: LaneDifference | None
    """The first different token; None if all ids are equal."""
    largest: Finite
    """Largest difference of a candidate's logprob, up to the first different token."""
    rounding: Finite
    """Largest difference that rounding in both runs can explain: twice the rounding of a logit."""
    ms: Finite
    """Time of the whole run alone."""

    @property
    def within(self) -> bool:
        """True if rounding explains all differences of the logprobs."""
        return self.largest <= self.rounding


class BatchCompared(Record, frozen=True):
    """Time of a batch and time of its prompts one after another, both measured in this process."""

    lanes: Count
    """Number of lanes, without removed ones."""
    tokens: Count
    """Number of tokens that these lanes decoded in the batch."""
    together_ms: Finite
    alone_tokens: Count
    alone_ms: Finite


class DrawnToken(Struct, frozen=True):
    """Frequency of one token among the first tokens of many draws, and the sampler's probability of it."""

    id: Count
    text: str
    prob: Finite
    """Probability of the token in the sampler's distribution."""
    count: Count
    """Number of draws that gave the token."""
    low: Finite
    """Lower end of Wilson's 95 % interval around the frequency."""
    high: Finite
    """Upper end of that interval."""


class DrawsCounted(Record, frozen=True):
    """The first tokens of many draws after one node, compared with the sampler's distribution."""

    node: Count
    draws: Count
    outcomes: tuple[DrawnToken, ...]
    """Tokens that were drawn or that the sampler makes likely, most probable first."""
    others: Count
    """Number of draws of tokens that are not listed."""
    others_prob: Finite
    chi_square: Finite
    """Pearson's chi-square, over the cells with at least five expected draws and one cell for all others."""
    degrees: Count
    """Degrees of freedom; 0 if there is only one cell."""
    p_value: Finite
    """Probability of this chi-square or a larger one, if the draws follow the stated distribution."""
    tossed: bool = False
    """True if XTC makes a random choice for each draw: the stated probabilities are the mean of both outcomes."""


# ---- beam search -----------------------------------------------------------------------------------


class SearchBeams(Command, frozen=True):
    """Run a beam search from the current node; answered by `BeamOpened`, `BeamStep` records and `BeamEnded`.

    `GoOnBeams` continues a search that was cancelled or paused after `steps`, until the next prompt, model or search.
    """

    settings: BeamSettings
    steps: Count | None = None
    """Number of steps to take; None for all."""


class GoOnBeams(Command, frozen=True):
    """Continue the paused search; answered by `BeamStep` records and, at its end, `BeamEnded`."""

    steps: Count | None = None
    """Number of steps to take; None for all."""


class Beam(Struct, frozen=True):
    """A live hypothesis of a beam search, after one of its steps."""

    node: Count
    parent: Count
    """Node of the beam that this one extends."""
    place: Count
    """Index among the live beams of the step, 0 for the best; -1 if greedy decoding is not a live beam."""
    parent_place: Count
    """`place` of the beam that this one extends, in the step before."""
    id: Count
    """Id of the last token."""
    text: str
    """Characters that the last token completes."""
    logprob: float
    """Logprob of the last token: float32 log-softmax of the model's own logits, without a sampler."""
    total_logprob: float
    """Sum of the logprobs of all tokens since the search began."""
    score: float
    """Equal to `total_logprob / length ** length_penalty`."""
    length: Count
    """Number of tokens since the search began."""


class Hypothesis(Struct, frozen=True):
    """A finished continuation of a beam search or of greedy decoding."""

    node: Count
    """Node of the last token."""
    ids: tuple[Count, ...]
    """Token ids, including an end-of-sequence token."""
    text: str
    """Text without the end-of-sequence token."""
    logprob: float
    """Sum of the logprobs of all tokens."""
    score: float
    length: Count
    reason: Literal["eos", "length"]
    end: str = ""
    """Name of the end-of-sequence token, since a model may have several; empty if there is none."""


class BeamOpened(Record, frozen=True):
    """A beam search began."""

    node: Count
    """The session's current node, which the search does not change."""
    width: Count
    length_penalty: Finite
    early_stopping: bool
    max_tokens: Count
    """Maximum number of tokens: as requested, or fewer if the context window ends before."""
    note: str = ""
    """Reason why the beams run one after another; empty if they run at once."""


class BeamStep(Record, frozen=True):
    """Every live beam was extended by a token."""

    step: Count
    """Number of the step, from 1."""
    live: tuple[Beam, ...]
    """Live beams, best first; empty at the maximum number of tokens, and while only greedy decoding continues."""
    pruned: tuple[Beam, ...]
    """Beams of the previous step that no live beam or hypothesis extends."""
    finished: tuple[Hypothesis, ...]
    """Best hypotheses so far, best first; at most as many as the width."""
    greedy: Beam | None
    """Last token of greedy decoding, with `place` -1 unless it is a live beam; None after greedy decoding has ended."""
    rows: Count
    """Number of sequences that the model ran for the next step."""
    ms: Finite
    last: bool
    """True if `BeamEnded` follows."""


class BeamEnded(Record, frozen=True):
    """A beam search has ended."""

    ranking: tuple[Hypothesis, ...]
    """Hypotheses, best score first."""
    greedy: Hypothesis
    """Result of greedy decoding; if a hypothesis of the ranking has the same tokens, both have the same node."""
    left: tuple[Beam, ...]
    """Beams that were live when the search ended."""
    steps: Count
    """Number of steps of the search; greedy decoding may have continued longer."""
    reason: Literal["finished", "length"]
    """`finished` if there were enough hypotheses or no live beams; `length` at the maximum number of tokens."""
    ms: Finite


# ---- speculative decoding --------------------------------------------------------------------------


class LoadDraft(OneProcess, frozen=True):
    """Load a draft; answered by `DraftLoading` records and `DraftReady`, or by neither if it is already loaded."""

    stoppable: ClassVar[bool] = True
    settings: SpeculationSettings


class TakeRound(OneProcess, frozen=True):
    """Take a round of speculative decoding; answered by a `Step` for each token and a `DraftRound`.

    A draft that isn't loaded yet is loaded first, as by `LoadDraft`.
    """

    stoppable: ClassVar[bool] = True
    settings: SpeculationSettings
    inside: bool = False
    """True to take only the next stage of the round (propose, verify or take); each is answered by a `DraftRound`."""


class RunRounds(OneProcess, frozen=True):
    """Take rounds until a stop, a breakpoint or a cancel, any of which may end a round early."""

    stoppable: ClassVar[bool] = True
    settings: SpeculationSettings
    until: Breakpoints | None = None
    """Breakpoints in addition to the settings' own stops, as for `Run`."""
    over_sure: bool = False
    """True to also stop if the next token is not sure, as for `Run`."""
    plain: Count = 0
    """Number of plain steps to take first, as a comparison for the rounds."""


class VerifySpeculation(OneProcess, frozen=True):
    """Decode the tokens after a node again by plain steps, in separate caches; answered by `SpeculationVerified`."""

    stoppable: ClassVar[bool] = True
    node: Count
    """Node before the first token to decode, on the path to the current node, which is the last one compared."""


DraftFate = Literal["drafted", "accepted", "refused", "unseen"]
"""`drafted`: not verified yet. `refused`: the sampler took another token. `unseen`: after a refused token or a stop,
and not evaluated."""
RoundStage = Literal["proposed", "verified", "taken"]


class DraftLoading(Record, frozen=True):
    """Progress of loading the draft model."""

    lasting: ClassVar[bool] = False
    name: str
    done: Count
    total: Count
    """Total in the unit of `done`; 0 if unknown."""


class DraftReady(Record, frozen=True):
    """A draft is ready to propose tokens."""

    settings: SpeculationSettings
    weight_bytes: Count
    """Bytes of the draft model's weights; 0 if the draft needs no model."""
    ms: Finite
    """Time of loading the draft."""
    note: str = ""


class AcceptanceRates(Struct, frozen=True):
    """The probability, before the draw, that a drafted token is accepted, for three acceptance rules.

    Each is computed from the two distributions after the same path, without another forward pass. All are equal if the
    draft has no probabilities. See `engine.decoding.speculation`.
    """

    position_draw: Finite
    """The rule in use: both models draw with the same random number; accept if both draw the same token."""
    rejection: Finite
    """Accept with probability min(1, p/q), else draw from the residual (Leviathan et al. 2023)."""
    match: Finite
    """Both models draw independently; accept if both draw the same token (mlx_lm)."""


class DraftToken(Struct, frozen=True):
    """One token of a draft."""

    id: Count
    text: str
    """Characters that the token would complete; empty while they are unfinished."""
    raw: bytes
    fate: DraftFate
    draft_prob: Finite | None = None
    """Probability in the draft's distribution after the sampler; None if the draft has no probabilities."""
    target_prob: Finite | None = None
    """Probability in the session's distribution after the sampler; None if the token was not evaluated."""
    rank: Count | None = None
    """Rank by the model's own logits, 1 for the most probable; None if the token was not evaluated."""
    rates: AcceptanceRates | None = None
    """Acceptance rates of a token at this position; None if the token was not evaluated."""


class TakenInstead(Struct, frozen=True):
    """The token that the sampler took instead of the refused one; the next round or step begins with it."""

    id: Count
    text: str
    raw: bytes
    draft_prob: Finite | None
    target_prob: Finite


class DraftRound(Record, frozen=True):
    """One round of speculative decoding: tokens were drafted, verified in one forward pass, and taken if accepted.

    It follows the `Step` records of its tokens. A round in stages has a record for each stage.
    """

    node: Count
    """Node at which the round began."""
    end: Count
    """Node of the last token taken; equal to `node` before a token is taken."""
    stage: RoundStage
    settings: SpeculationSettings
    first: Count
    """Id of the token that the sampler had picked after `node` before the round began."""
    first_text: str
    drafts: tuple[DraftToken, ...]
    """Drafted tokens; if there are none, the round is a plain step."""
    instead: TakenInstead | None
    """Token that was taken instead of the refused one; None if none was refused."""
    matched: Count
    """Number of tokens at the end of the text that a lookup found earlier in it; 0 for draft models."""
    taken: Count
    """Number of tokens that the round added: the first and the accepted ones."""
    verified: Count
    """Number of tokens in the verifying forward pass, including the first one; 0 before it ran."""
    draft_ms: Finite
    verify_ms: Finite
    """Time of the verifying forward pass, and of the sampler at each token up to the first refused one."""
    take_ms: Finite
    """Time to make nodes, records and readings of the tokens taken, and to remove the KV of the others."""
    ms: Finite
    """Time of the whole round, without `rates_ms`."""
    rates_ms: Finite
    """Time for the acceptance rates, probabilities and ranks, which plain speculation doesn't compute."""
    stalled_ms: Finite
    """Time of garbage collection and of drawing the screen during the round, not included in `ms`."""
    note: str = ""
    """Reason why verification costs more with these caches; empty if it doesn't."""


class SpeculationVerified(Record, frozen=True):
    """A part of the text was decoded again by plain steps, in separate caches."""

    begin: Count
    """Node before the first token: the requested one, or the end of the last prompt if that comes later."""
    end: Count
    """Last node of the part."""
    tokens: Count
    """Number of tokens of the part, up to the first different one and including `chosen`."""
    chosen: Count
    """Number of tokens not taken by the sampler, such as chosen or inserted ones: they run, but are not compared."""
    differs: Count | None
    """First node where a plain step takes another token; None if all are equal."""
    plain: Count | None
    """Id of the token that a plain step takes at `differs`; None if all are equal."""
    plain_text: str
    difference: float
    """Largest absolute difference of the logits, over the compared nodes with cached logits."""
    plain_ms: Finite
    """Median time of these plain steps, forward pass and sampler."""
