"""Measurements: race, profile, roofline, KV bits; and models that several processes compute."""

from __future__ import annotations

from typing import ClassVar, Literal

from msgspec import Struct

from engine.protocol.base import Command, Count, Finite, Record

# ---- measurements ----------------------------------------------------------------------------------


class Measure(Command, frozen=True):
    """Base of measurements on separate caches; answered by `Measuring` records and those that the class names."""


class Race(Measure, frozen=True):
    """Race with a KV cache and without one; answered by `RaceOpened`, `RaceStep` records and `RaceEnded`."""

    first: Count = 16
    """Tokens of the sequence before the first step that is measured."""
    last: Count = 128
    """Tokens after the last; at most the context window."""


class Profile(Measure, frozen=True):
    """Measure the parts of the next step with fences; answered by one `Profiled`."""

    over_ranks: ClassVar[bool] = False
    repeats: Count = 5
    """Counted rounds, after the warm-up."""


class CaptureMetal(Measure, frozen=True):
    """Have Metal record one step, for Xcode; answered by one `MetalCaptured`. Refused where MLX has no Metal."""

    over_ranks: ClassVar[bool] = False
    path: str
    """Of the file, which is not there yet: its name ends with `.gputrace`."""


class MetalCaptured(Record, frozen=True):
    """Metal recorded a step."""

    lasting: ClassVar[bool] = False
    path: str
    ms: Finite
    """Of the step, while it was recorded."""


class MeasureRoofline(Measure, frozen=True):
    """Compare prefill and decode with the machine's limits; answered by one `RooflineMeasured`."""

    over_ranks: ClassVar[bool] = False


class CompareKV(Measure, frozen=True):
    """Compute the path with quantized KV caches; answered by `KVCompared` after each precision."""

    over_ranks: ClassVar[bool] = False
    bits: tuple[Count, ...] = (8, 4)
    group_size: Count | None = None
    """None for 64, or 32 where the heads are smaller."""


class RaceOpened(Record, frozen=True):
    """A race begins: the same tokens with a KV cache and without one, both in separate caches."""

    node: Count
    """The session's current node, before and after."""
    first: Count
    """Tokens of the sequence before the first step that is measured."""
    last: Count
    """Tokens of the sequence after the last."""
    given: Count
    """Tokens of the path: both lanes follow it to its end, then they continue by themselves."""
    how: str
    """How the milliseconds are taken, as sentences."""


class RaceStep(Record, frozen=True):
    """Both lanes took one step with the same token."""

    tokens: Count
    """Of the sequence after it: the lane without a cache ran all of them, the other one the last alone."""
    id: Count
    """The token that the step ran."""
    text: str
    """The characters that it finished."""
    cached_ms: Finite
    uncached_ms: Finite
    cached_total_ms: Finite
    """Of all steps so far."""
    uncached_total_ms: Finite
    cached_pick: Count
    """The sampler's next token in the lane with the cache; both lanes continue with it, beyond the path's end."""
    uncached_pick: Count
    """The sampler's next token in the other, with the same draw."""
    largest_difference: float
    """Of the two lanes' logits, absolute."""
    kv_bytes: Count
    """Held by the cache."""
    passed_bytes: Count
    """Keys and values that the pass without a cache made and dropped."""

    @property
    def equal(self) -> bool:
        """True if both lanes take the same token next."""
        return self.cached_pick == self.uncached_pick


class RaceEnded(Record, frozen=True):
    """A race reached its length."""

    steps: Count
    cached_total_ms: Finite
    uncached_total_ms: Finite
    differences: tuple[Count, ...]
    """Lengths (as `RaceStep.tokens`) after which the lanes took other tokens; empty where all are equal."""
    largest_difference: float
    """Of the logits, over all steps."""


Role = Literal[
    "embedding",
    "norm",
    "attention",
    "recurrence",
    "mlp",
    "residual",
    "head",
    "sampling",
    "detokenizing",
    "other",
]
"""What a part does. `recurrence`: a state-space, linear-attention or convolution mixer. `residual`: what a layer does
itself, between its parts. `other`: not known; the part's name says where it is."""


class ProfilePart(Struct, frozen=True):
    """One part of a step, fenced: its inputs were evaluated before its time, its outputs within it."""

    name: str
    """Attribute path in the model: `model.layers.3.self_attn`; `sampling` and `detokenizing` for these."""
    role: Role
    layer: Count | None
    """None outside the layers."""
    ms: Finite
    """Without the parts inside it; a mean over the same rounds as the whole step."""


class Profiled(Record, frozen=True):
    """One step taken apart, on a copy of the cache."""

    node: Count
    """The session's current node: the step after it was measured."""
    tokens: Count
    """In the context before the step."""
    repeats: Count
    parts: tuple[ProfilePart, ...]
    """In the order in which they ran."""
    fenced_ms: Finite
    """The whole step with all fences: the mean of the middle half of the repeats by their total."""
    unfenced_ms: Finite
    """The same step without them, measured in turn with it; the same mean."""
    how: str
    """How it was measured, as sentences."""

    @property
    def other_ms(self) -> float:
        """The time outside the parts: masks, scalings and copies between them, and the program's own calls."""
        return max(0.0, self.fenced_ms - sum(part.ms for part in self.parts))


class Work(Struct, frozen=True):
    """One forward: what it must read and compute by formula, and how long it took."""

    tokens: Count
    """Of the forward."""
    context: Count
    """Tokens held when it ended."""
    weight_bytes: Count
    """Of the weights that it reads once."""
    kv_bytes: Count
    """Of keys, values and states that it reads."""
    flops: Count
    """Multiplications and additions, counted as two."""
    ms: Finite
    """The best of the repeats, unfenced: what the machine can do. All rates are of it."""
    median_ms: Finite
    """Of the same repeats: far above the best on a machine that is busy."""

    @property
    def gbs(self) -> float:
        """The bytes over the time, in 10^9 a second."""
        return (self.weight_bytes + self.kv_bytes) / self.ms / 1e6 if self.ms else 0.0

    @property
    def gflops(self) -> float:
        """The operations over the time, in 10^9 a second."""
        return self.flops / self.ms / 1e6 if self.ms else 0.0

    @property
    def intensity(self) -> float:
        """Operations for each byte read."""
        return self.flops / max(1, self.weight_bytes + self.kv_bytes)


class RooflineMeasured(Record, frozen=True):
    """Prefill and decode of this model against the limits of this machine, both as MLX reaches them."""

    node: Count
    bandwidth_gbs: Finite
    """The most bytes a second of several ways to read a large array."""
    bandwidth_how: str
    matmul_gflops: Finite
    """The most operations a second of a matrix product in the weights' own type."""
    matmul_how: str
    decode: Work
    prefill: Work | None
    """None where the path is a single token."""
    active_parameters: Count
    """That take part in a token."""
    how: str
    """The formulas, as sentences."""
    notes: tuple[str, ...] = ()
    """Facts that are not known of this model, and the assumptions instead."""
    ms: Finite = 0.0
    """All of it."""

    @property
    def ridge(self) -> float:
        """Operations for each byte from which on arithmetic is the limit."""
        return self.matmul_gflops / self.bandwidth_gbs if self.bandwidth_gbs else 0.0

    def roof(self, intensity: float) -> float:
        """GFLOP/s that the machine allows at an intensity, in operations a byte."""
        return min(self.matmul_gflops, self.bandwidth_gbs * intensity)

    def share(self, work: Work) -> float:
        """How much of the roof a forward reaches: above 1 where it is faster than what the roof was measured with."""
        roof = self.roof(work.intensity)
        return work.gflops / roof if roof else 0.0


class KVCost(Struct, frozen=True):
    """The KV cache of one path at one precision."""

    bits: Count
    """Of each number: those of the model's own type, or of quantized ones."""
    group_size: Count | None
    """Numbers that share a scale and a bias; None where nothing is quantized."""
    formula_bytes: Count
    """Of the tokens held, by formula."""
    used_bytes: Count
    """Read off the arrays."""
    allocated_bytes: Count
    largest_change: float
    """Of the logits after the path, absolute, against the model's own type."""
    mean_change: float
    same_top: bool
    """True if the most probable token is the same."""
    ms: Finite
    """To compute the path."""
    refused: str = ""
    """Why this model can't have such a cache, and what to use instead; then all figures are 0."""
    note: str = ""
    """Which caches of the model are not quantized."""


class KVCompared(Record, frozen=True):
    """The path in caches of several precisions; emitted after each of them, with all results so far."""

    node: Count
    tokens: Count
    costs: tuple[KVCost, ...]
    """The model's own type first."""
    formula: str
    """In words and in this model's numbers."""
    last: bool


class Machine(Struct, frozen=True):
    """The machine and the versions with which figures were measured."""

    system: str
    processor: str
    cores: Count
    memory_bytes: Count | None
    """None where the system doesn't report it."""
    python: str
    mlx: str
    mlx_lm: str
    backend: str
    blas: str = ""
    """What multiplies float32 matrices on a CPU; empty for what MLX brings."""


class ReadMachine(Command, frozen=True):
    """Measure what the numbers of a model depend on here, in a second; answered by one `MachineRead`."""

    over_ranks: ClassVar[bool] = False


class MachineRead(Record, frozen=True):
    """The machine, and what its arithmetic and its device do."""

    lasting: ClassVar[bool] = False
    machine: Machine
    numpy: str
    """Its version."""
    memory_available: Count | None
    """Bytes that a program can take now; None where the system doesn't tell."""
    memory_for_models: Count | None
    """Bytes that MLX lets the arrays of models take on its device."""
    product_error: Finite
    """Of a float32 product of two matrices, as a share of its largest number."""
    product_type: str
    """The type that float32 products are as exact as: `float32`, or `float16`, which has the digits of TF32."""
    nothing_ms: Finite
    """Of an evaluation with next to nothing to compute: what each waiting for the device costs."""
    late_token: bool
    """True where a forward reads the token that the host writes after the build of its graph, as runs on a GPU do."""


# ---- models that several processes compute ---------------------------------------------------------


class MeasureRanks(Measure, frozen=True):
    """What each rank holds, and its time in compute and communication; answered by one `RanksMeasured`.

    Refused where the model runs in this process alone.
    """

    rounds: Count = 5
    """Counted rounds, after one that warms up."""


Sharding = Literal["tensor", "pipeline"]
"""`tensor`: every rank has a part of each weight of all layers. `pipeline`: every rank has some whole layers."""


class RankFacts(Struct, frozen=True):
    """One process of several that compute a model together, at one moment."""

    rank: Count
    """From 0, which has the screen, samples and decides."""
    host: str
    """Name of its machine."""
    pid: Count
    first_layer: Count
    """From 0, in the order in which tokens go through the layers."""
    layers: Count
    """How many it has: all with `tensor`."""
    weight_bytes: Count
    """Of its own weights. What every rank has whole (embedding, norms, head) counts on each."""
    memory_bytes: Count
    """Of the process, resident; on macOS its peak so far, 0 where the system doesn't report it."""
    kv_used_bytes: Count
    """Of the session's live cache on this rank: bytes that hold tokens or state."""
    kv_allocated_bytes: Count
    """Bytes that this cache has allocated."""


class RanksLoaded(Record, frozen=True):
    """A model was loaded over several processes; follows its `ModelFacts`, which are of the whole model."""

    sharding: Sharding
    ranks: tuple[RankFacts, ...]
    """In their order; nothing is in the caches yet."""


class RankTime(Struct, frozen=True):
    """Where the time of one token's forward went on one rank, with a fence before and after each communication."""

    rank: Count
    compute_ms: Finite
    """Of the best round."""
    communication_ms: Finite
    """Of the same round, waiting for other ranks included."""
    compute_spread_ms: Finite
    """Between the least and the greatest of all counted rounds."""
    communication_spread_ms: Finite


class RanksMeasured(Record, frozen=True):
    """The contents of the ranks now, and the time of one more token on each; the session did not change."""

    sharding: Sharding
    ranks: tuple[RankFacts, ...]
    tokens: Count
    """That the cache held before the token."""
    rounds: Count
    """Counted, after one that warms up."""
    step_ms: Finite
    """Of one token without fences, the best of as many rounds, on rank 0."""
    step_spread_ms: Finite
    times: tuple[RankTime, ...]
    """By rank."""
    slowest: Count
    """The rank that computes longest: the others wait for it."""
