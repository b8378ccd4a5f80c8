"""What may leave the engine: frozen dataclasses of plain values, made once and never changed.

Everything the screen shows, the headless command prints and a trace keeps is one of these. Units are in the
names: `ms` milliseconds, `bytes` bytes, `bits` base-2, `logprob` natural logarithm, `tps` tokens a second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Origin = Literal["prompt", "greedy", "sampled", "chosen", "inserted", "beam"]
"""How a token came to stand in the tree."""

FinishReason = Literal["eos", "stop", "length", "cancelled"]

CacheKind = Literal["plain", "quantized", "rotating", "recurrent", "chunked", "list", "other"]


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What is known of a model once it is loaded."""

    name: str
    """Short name for the header: `pocket`, a directory's name, or a hub id."""
    path: str
    family: str
    """`model_type` of config.json."""
    layers: int
    heads: int | None
    kv_heads: int | None
    head_size: int | None
    hidden_size: int | None
    vocabulary: int
    """Rows of the embedding: ids 0 to vocabulary - 1 may reach the model."""
    parameters: int
    weight_bytes: int
    dtype: str
    """Of the computation: `bfloat16`, `float16` or `float32`."""
    quantization: str | None
    """`4-bit, group 64, affine`, or None for plain weights."""
    context_window: int | None
    """Tokens, None where the model states none (recurrent families)."""
    hard_window: bool
    """True where positions past the window have no embedding, so that it can't be passed."""
    cache_kinds: tuple[CacheKind, ...]
    """One for each cache, which is one for each layer that keeps state."""
    kv_bytes_per_token: int | None
    """Bytes that one more token adds to all caches together, None where the kind doesn't grow."""
    eos_ids: tuple[int, ...]
    has_chat_template: bool
    backend: str
    """`cpu` or `gpu`, as MLX names its default device."""
    load_ms: float
    notes: tuple[str, ...] = ()
    """What was asked for and is not so, or differs from the files: one sentence each."""


@dataclass(frozen=True, slots=True)
class Loading:
    """How far the loading is."""

    stage: Literal["import", "download", "weights", "tokenizer"]
    done: int
    total: int
    """In the stage's own unit (bytes of a download, tensors of the weights); 0 while unknown."""
    detail: str


@dataclass(frozen=True, slots=True)
class KVGroup:
    """The caches of one model that are of one kind and read the same."""

    kind: CacheKind
    layers: tuple[int, ...]
    """Cache indices, in model order."""
    held: int
    """Tokens held by each: less than the offset where a window has dropped some, 0 for a recurrent state."""
    limit: int | None
    """Tokens that each can hold, None where it grows with the text."""
    used_bytes: int
    """Bytes in each that hold tokens or state."""
    allocated_bytes: int
    """Bytes that each has allocated."""


@dataclass(frozen=True, slots=True)
class KVReading:
    """The KV cache at one moment, read off the cache objects."""

    offset: int
    """Tokens that have gone through the model along the current path."""
    used_bytes: int
    allocated_bytes: int
    groups: tuple[KVGroup, ...]


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of the framework, as `mlx.core` reports it."""

    active_bytes: int
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Milliseconds of one step.

    Fenced unless `pipelined`: nothing of the next step is under way in them.
    """

    total: float
    forward: float
    """The model, until its logits are in host memory."""
    sample: float
    """Penalties, filters and draw for the token that follows."""
    inspect: float
    """Candidates, entropy, ranks and readings; in a pipelined step they run beside the next forward."""
    pipelined: bool = False
    """True in a run without a pace: then `total` goes from launch to the next token known, without `inspect`."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One token that could come next."""

    id: int
    text: str
    """The characters that it would add to the text so far; empty while they are unfinished."""
    raw: bytes
    special: bool
    logprob: float
    """float32 log-softmax of the model's own logits, before any penalty or filter."""
    prob: float
    rank: int
    """1 for the most probable; ties share the lowest."""
    sampler_prob: float
    """Probability with which the sampler draws it, after every stage."""
    cut_by: str | None
    """Name of the stage that took it out, None while it is in."""


@dataclass(frozen=True, slots=True)
class StageReading:
    """What one stage of the sampler did."""

    name: str
    kept: int
    """Tokens still in after it."""
    removed_mass: float
    """Probability, before the stage, of what it took out."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """What the model expects after one node, and what the sampler will make of it."""

    node: int
    position: int
    """Index in the context of the token to come."""
    candidates: tuple[Candidate, ...]
    """The most probable by the model, best first; the picked one is among them even if its rank is beyond."""
    entropy_bits: float
    """Of the model's own distribution."""
    sampler_entropy_bits: float
    """Of the distribution that is drawn from: the choice that is left."""
    others: int
    """Tokens of the vocabulary that are not among the candidates."""
    others_prob: float
    others_sampler_prob: float
    stages: tuple[StageReading, ...]
    picked: int
    """Id that the sampler takes here: a step makes it the next token."""
    draw: float | None
    """The random number in [0, 1) that picked it, None for greedy."""
    draw_from: float | None
    """The picked token's share of the cumulative distribution starts here (ranked, after the sampler) ..."""
    draw_to: float | None
    """... and ends here."""
    reroll: int
    """How often the draw was made again at this node; part of the draw's seed."""


@dataclass(frozen=True, slots=True)
class PromptToken:
    """One token of the prompt, and what the model thought of it when it came."""

    node: int
    position: int
    id: int
    text: str
    raw: bytes
    special: bool
    logprob: float | None = None
    """None for the first token, and where prompt logprobs are off."""
    prob: float | None = None
    rank: int | None = None
    entropy_bits: float | None = None
    candidates: tuple[Candidate, ...] = ()
    """What the model expected at this place; `sampler_prob` equals `prob`, since nothing is drawn."""


@dataclass(frozen=True, slots=True)
class PromptOpened:
    """A prompt was encoded; the prefill begins. A new tree: what was shown before is gone from the engine."""

    text: str
    """What was encoded, chat template included."""
    chat: bool
    tokens: tuple[PromptToken, ...]
    """Without readings; they come with the chunks."""
    echo: bool
    """Whether prompt logprobs are computed."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PrefillChunk:
    """One chunk of the prompt went through the model."""

    done: int
    total: int
    ms: float
    """The forward as mlx_lm does it, until the caches are evaluated."""
    echo_ms: float
    """What the prompt logprobs cost on top; not part of TTFT."""
    kv: KVReading
    echo: tuple[PromptToken, ...]
    """The tokens of the prompt that this chunk made known, with readings; empty where they are off."""


@dataclass(frozen=True, slots=True)
class Prefilled:
    """The whole prompt is in the cache and the first distribution is known."""

    text: str
    tokens: tuple[PromptToken, ...]
    next: Distribution
    kv: KVReading
    memory: Memory
    ttft_ms: float
    """Time to first token: forward of the whole prompt and the first draw, without the prompt logprobs."""
    echo_ms: float
    prompt_tps: float


@dataclass(frozen=True, slots=True)
class Step:
    """One token was taken and went through the model."""

    index: int
    """Place in the completion of its path, from 0."""
    position: int
    """Place in the context, prompt included, from 0."""
    node: int
    parent: int
    id: int
    text: str
    """The characters that this token finished; concatenated they are the text."""
    raw: bytes
    pending: bytes
    """Bytes of an unfinished character that wait for the next token."""
    special: bool
    origin: Origin
    logprob: float
    prob: float
    sampler_prob: float
    rank: int
    surprisal_bits: float
    choice: Distribution
    """What it was taken from."""
    next: Distribution
    """What follows it."""
    kv: KVReading
    ms: StepTimes
    memory: Memory


@dataclass(frozen=True, slots=True)
class Resampled:
    """The sampler's settings or the re-roll count changed: the distribution at the tip, anew, with no forward."""

    next: Distribution


@dataclass(frozen=True, slots=True)
class StageColumn:
    """One stage of the sampler, as it left the candidates of one step."""

    name: str
    kept: int
    """Tokens of the whole vocabulary still in after it."""
    removed_mass: float
    unit: Literal["logit", "prob"]
    """What the values are: logits after a stage that changes them, probabilities among what is left after a filter."""
    values: tuple[float | None, ...]
    """One for each candidate, in their order; None once it is cut."""


@dataclass(frozen=True, slots=True)
class Explained:
    """How the sampler comes to its distribution after one node, stage by stage, from kept logits."""

    node: int
    logits: tuple[float, ...]
    """The model's own, one for each candidate of `next`, in their order."""
    columns: tuple[StageColumn, ...]
    """The stages that ran, in the order in which they ran."""
    earlier: tuple[tuple[int, ...], ...]
    """For each candidate, where in the context it stood before, as far back as the penalties look."""
    next: Distribution
    """The distribution under the settings asked for, with the same draw."""
    used: bool
    """Whether these are the settings that the distribution was made with when it was stepped."""


@dataclass(frozen=True, slots=True)
class WhatIfStep:
    """What the same draw would have picked at one step of the path under other settings."""

    node: int
    """The step's own node."""
    picked: int
    text: str
    same: bool
    """Whether that is the token which stands there."""


@dataclass(frozen=True, slots=True)
class WhatIfAnswered:
    """The steps of a path under other settings: each with the path before it as it is."""

    tip: int
    steps: tuple[WhatIfStep, ...]
    """Those whose logits are kept, in the path's order."""
    dropped: tuple[int, ...]
    """Nodes of steps whose logits were dropped to hold the memory bound: they can be recalled."""
    ms: float


@dataclass(frozen=True, slots=True)
class Recalled:
    """The logits after some nodes were computed again and are kept."""

    nodes: tuple[int, ...]
    ms: float


@dataclass(frozen=True, slots=True)
class Moved:
    """The cache stands at another node of the tree; this was the bill."""

    node: int
    kept: int
    """Tokens that stayed in the cache."""
    restored: int
    """Tokens whose KV was put back from memory."""
    recomputed: int
    """Tokens that went through the model again."""
    ms: float
    next: Distribution
    kv: KVReading
    note: str = ""
    """Why tokens were recomputed, when they were."""


@dataclass(frozen=True, slots=True)
class Verified:
    """The path was recomputed from nothing and set against what the live cache had given."""

    node: int
    tokens: int
    largest_difference: float
    """Of the logits, absolute."""
    same_order: bool
    """Whether the ten most probable tokens come in the same order."""
    ms: float


@dataclass(frozen=True, slots=True)
class Beam:
    """A live hypothesis of a beam search, after one of its steps."""

    node: int
    parent: int
    """Node of the beam that it grew from."""
    place: int
    """Among the live beams of its step, 0 the best."""
    parent_place: int
    """Of the beam that it grew from, among those of the step before."""
    id: int
    """The token that it grew by."""
    text: str
    """The characters that this token finished."""
    logprob: float
    """Of this token: float32 log-softmax of the model's own logits, no sampler."""
    total_logprob: float
    """Of all tokens since the search began."""
    score: float
    """total_logprob / length ** length_penalty."""
    length: int
    """Tokens since the search began."""


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A continuation that a beam search finished, or greedy decoding."""

    node: int
    """Its last token's."""
    ids: tuple[int, ...]
    """Its tokens, an end-of-sequence token included."""
    text: str
    """Without the end-of-sequence token."""
    logprob: float
    """Of all its tokens."""
    score: float
    length: int
    reason: Literal["eos", "length"]


@dataclass(frozen=True, slots=True)
class BeamOpened:
    """A beam search began."""

    node: int
    """Where the session stands, and went on standing."""
    width: int
    length_penalty: float
    early_stopping: bool
    max_tokens: int
    """As asked for, or fewer where the context window ends before."""
    note: str = ""
    """Why the beams go through the model one after another, if they do."""


@dataclass(frozen=True, slots=True)
class BeamStep:
    """Every live beam grew by a token."""

    step: int
    """From 1."""
    live: tuple[Beam, ...]
    """Best first. None once the search is over and only greedy decoding goes on."""
    pruned: tuple[Beam, ...]
    """Beams of the step before that nothing grew from: they fell out at this step."""
    finished: tuple[Hypothesis, ...]
    """The best so far, at most as many as the width, best first."""
    greedy: Beam | None
    """Where greedy decoding stands; its place is -1 unless it is a live beam. None once it ended before."""
    rows: int
    """Sequences that went through the model for the step to come."""
    ms: float
    last: bool
    """Whether `BeamEnded` follows."""


@dataclass(frozen=True, slots=True)
class BeamEnded:
    """A beam search is over."""

    ranking: tuple[Hypothesis, ...]
    """Best score first."""
    greedy: Hypothesis
    """What greedy decoding says; of the same node where the ranking has it too."""
    left: tuple[Beam, ...]
    """Beams that were live when the finished ones were good enough."""
    steps: int
    """Of the search; greedy decoding may have gone on longer."""
    reason: Literal["finished", "length"]
    """Whether enough hypotheses finished, or max tokens were reached."""
    ms: float


@dataclass(frozen=True, slots=True)
class Finished:
    """A stop was reached. Stepping on past it stays possible, except past a hard window."""

    node: int
    reason: FinishReason
    detail: str
    """`<|im_end|>`, the stop string, `100 tokens`, `context window of 512 tokens`."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A command is done; the engine waits for the next."""

    command: str
    """Class name of the command."""
    cancelled: bool = False


@dataclass(frozen=True, slots=True)
class Failure:
    """A command could not be carried out; the session stands where it stood."""

    command: str
    message: str
    hint: str
    expected: bool = True
    """False for a fault of the program itself: then `trace` holds the traceback."""
    trace: str = ""


Record = (
    ModelFacts
    | Loading
    | PromptOpened
    | PrefillChunk
    | Prefilled
    | Step
    | Resampled
    | Explained
    | WhatIfAnswered
    | Recalled
    | Moved
    | Verified
    | BeamOpened
    | BeamStep
    | BeamEnded
    | Finished
    | Ended
    | Failure
)
"""Whatever the engine thread hands out."""
