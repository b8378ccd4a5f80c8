"""Measurements: race, profile, roofline, KV precision; and models that several processes compute."""

from __future__ import annotations

from typing import ClassVar, Literal

from msgspec import Struct

from engine.protocol.base import Command, Count, Finite, OneProcess, Record

# ---- measurements ----------------------------------------------------------------------------------


class Measure(Command, frozen=True):
    """Base of measurements on separate caches; answered by the records named in each class, mostly after
    `Measuring` records."""


class Race(Measure, frozen=True):
    """Race with a KV cache and without one; answered by `RaceOpened`, `RaceStep` records and `RaceEnded`."""

    first: Count = 16
    """Number of tokens before the first measured step, at least 1."""
    last: Count = 128
    """Number of tokens after the last step; more than `first`, and at most the context window."""


class Profile(Measure, frozen=True):
    """Measure the parts of the next step with fences; answered by one `Profiled`."""

    over_ranks: ClassVar[bool] = False
    repeats: Count = 5
    """Number of rounds that count, after the warm-up."""


class CaptureMetal(Measure, frozen=True):
    """Capture one step with Metal, for Xcode; answered by one `MetalCaptured`. Fails if MLX has no Metal."""

    over_ranks: ClassVar[bool] = False
    path: str
    """Path of the new file, which must end with `.gputrace`."""


class MetalCaptured(Record, frozen=True):
    """Metal captured a step."""

    lasting: ClassVar[bool] = False
    path: str
    ms: Finite
    """Time of the step while it was captured."""


class MeasureRoofline(Measure, frozen=True):
    """Compare prefill and decode with the machine's limits; answered by one `RooflineMeasured`."""

    over_ranks: ClassVar[bool] = False


class CompareKV(Measure, frozen=True):
    """Compute the path with quantized KV caches; answered by `KVCompared` after each precision."""

    over_ranks: ClassVar[bool] = False
    bits: tuple[Count, ...] = (8, 4)
    group_size: Count | None = None
    """Number of values that share a scale and a bias; None for 64, or for 32 if the head size isn't divisible by 64."""


class RaceOpened(Record, frozen=True):
    """A race begins: the same tokens with a KV cache and without one, both in separate caches."""

    node: Count
    """The session's current node, which the race doesn't change."""
    first: Count
    """Number of tokens before the first measured step."""
    last: Count
    """Number of tokens after the last step."""
    given: Count
    """Number of tokens of the session's path; after its end, both lanes follow the picks of the lane with the cache."""
    how: str
    """Sentences on how the milliseconds are measured."""


class RaceStep(Record, frozen=True):
    """Both lanes took one step with the same token."""

    tokens: Count
    """Number of tokens after the step; the lane without a cache ran all of them, the other lane only the last one."""
    id: Count
    """Id of the token that the step ran."""
    text: str
    """Characters that the token completes."""
    cached_ms: Finite
    uncached_ms: Finite
    cached_total_ms: Finite
    """Time of all steps so far."""
    uncached_total_ms: Finite
    cached_pick: Count
    """Id of the sampler's next token in the lane with the cache; after the end of the path both lanes take it."""
    uncached_pick: Count
    """Id of the sampler's next token in the lane without a cache, with the same draw."""
    largest_difference: float
    """Largest absolute difference between the two lanes' logits."""
    kv_bytes: Count
    """Bytes in the cache."""
    passed_bytes: Count
    """Bytes of keys and values that the forward pass without a cache computed and dropped."""

    @property
    def equal(self) -> bool:
        """True if the sampler picks the same next token in both lanes."""
        return self.cached_pick == self.uncached_pick


class RaceEnded(Record, frozen=True):
    """A race reached its last step."""

    steps: Count
    cached_total_ms: Finite
    uncached_total_ms: Finite
    differences: tuple[Count, ...]
    """Lengths (`RaceStep.tokens`) after which the lanes' picks differ; empty if all picks are equal."""
    largest_difference: float
    """Largest absolute difference of the logits over all steps."""


Role = Literal[
    "embedding", "norm", "attention", "recurrence", "mlp", "residual", "head", "sampling", "detokenizing",
    "other",
]  # fmt: skip
"""Role of a part. `recurrence`: a state-space, linear-attention or convolution mixer. `residual`: the work of a layer
itself, between its parts. `other`: unknown."""


class ProfilePart(Struct, frozen=True):
    """One part of a step with fences: its inputs are evaluated before its time starts, its outputs before it ends."""

    name: str
    """Attribute path in the model, such as `model.layers.3.self_attn`; or `sampling` or `detokenizing`."""
    role: Role
    layer: Count | None
    """Index of the layer, from 0; None outside the layers."""
    ms: Finite
    """Time without the parts inside this one: the mean over the same rounds as for the whole step."""


class Profiled(Record, frozen=True):
    """Times of the parts of one step, measured on a copy of the cache."""

    node: Count
    """The session's current node; the step after it was measured."""
    tokens: Count
    """Number of tokens in the context before the step."""
    repeats: Count
    parts: tuple[ProfilePart, ...]
    """Parts in the order in which they ended, so that a layer comes after the parts inside it."""
    fenced_ms: Finite
    """Time of the whole step with all fences: the mean of the middle half of the repeats by total time."""
    unfenced_ms: Finite
    """Time of the same step without fences, measured alternately with it; the same kind of mean."""
    how: str
    """Sentences on how the times were measured."""

    @property
    def other_ms(self) -> float:
        """Time outside the parts: masks, scalings and copies between them, and the program's own calls."""
        return max(0.0, self.fenced_ms - sum(part.ms for part in self.parts))


class Work(Struct, frozen=True):
    """One forward pass: the bytes and operations that it needs by formula, and its measured time."""

    tokens: Count
    """Number of tokens in the forward pass."""
    context: Count
    """Number of tokens in the context at the end of the forward pass."""
    weight_bytes: Count
    """Bytes of the weights that the forward pass reads, each counted once."""
    kv_bytes: Count
    """Bytes of the keys, values and states that the forward pass reads."""
    flops: Count
    """Number of operations; a multiplication and an addition count as two."""
    ms: Finite
    """Shortest time of the repeats, without fences; all rates use it."""
    median_ms: Finite
    """Median time of the same repeats; far above the shortest on a busy machine."""

    @property
    def gbs(self) -> float:
        """Bytes read per second, in 10^9."""
        return (self.weight_bytes + self.kv_bytes) / self.ms / 1e6 if self.ms else 0.0

    @property
    def gflops(self) -> float:
        """Operations per second, in 10^9."""
        return self.flops / self.ms / 1e6 if self.ms else 0.0

    @property
    def intensity(self) -> float:
        """Operations per byte read."""
        return self.flops / max(1, self.weight_bytes + self.kv_bytes)


class RooflineMeasured(Record, frozen=True):
    """Prefill and decode of this model against the limits of this machine, all measured with MLX."""

    node: Count
    bandwidth_gbs: Finite
    """Highest rate of several operations on a large array, in 10^9 bytes read or written per second."""
    bandwidth_how: str
    matmul_gflops: Finite
    """Highest rate of a matrix product with weights of the model's own type, in 10^9 operations per second."""
    matmul_how: str
    decode: Work
    """Forward pass of the next step."""
    prefill: Work | None
    """Forward pass of the path's first tokens; None if the path is a single token."""
    active_parameters: Count
    """Number of parameters that take part in computing a token."""
    how: str
    """Sentences on how the forward passes were measured, and the formulas."""
    notes: tuple[str, ...] = ()
    """Sentences on unknown facts about this model with the assumptions made, and on what limited or disturbed the
    measurement."""
    ms: Finite = 0.0
    """Time of the whole measurement."""

    @property
    def ridge(self) -> float:
        """Operations per byte above which arithmetic is the limit."""
        return self.matmul_gflops / self.bandwidth_gbs if self.bandwidth_gbs else 0.0

    def roof(self, intensity: float) -> float:
        """GFLOP/s that the machine allows at an intensity, in operations per byte."""
        return min(self.matmul_gflops, self.bandwidth_gbs * intensity)

    def share(self, work: Work) -> float:
        """Share of the roof that a forward pass reaches; above 1 if it is faster than the measured roof."""
        roof = self.roof(work.intensity)
        return work.gflops / roof if roof else 0.0


class KVCost(Struct, frozen=True):
    """The KV cache of one path at one precision."""

    bits: Count
    """Bits per number, quantized or in the model's own type."""
    group_size: Count | None
    """Number of values that share a scale and a bias; None if nothing is quantized."""
    formula_bytes: Count
    """Bytes of the cached tokens, by formula; caches that can't be quantized count with their measured bytes."""
    used_bytes: Count
    """Bytes of the cached tokens, read from the arrays."""
    allocated_bytes: Count
    largest_change: float
    """Largest absolute change of a logit after the path, compared with the model's own type."""
    mean_change: float
    """Mean absolute change of those logits."""
    same_top: bool
    """True if the most probable token is the same."""
    ms: Finite
    """Time to compute the path."""
    refused: str = ""
    """Reason why this model can't have such a cache, and what to use instead; all measurements are then 0."""
    note: str = ""
    """Sentence on the model's caches that are not quantized; empty if all are, or for the model's own type."""


class KVCompared(Record, frozen=True):
    """The path in caches of several precisions; emitted after each precision, with all results so far."""

    node: Count
    tokens: Count
    costs: tuple[KVCost, ...]
    """One result for each precision so far, the model's own type first."""
    formula: str
    """Formula of `formula_bytes`, in words."""
    last: bool


class Machine(Struct, frozen=True):
    """The machine, and the versions of the software."""

    system: str
    processor: str
    cores: Count
    memory_bytes: Count | None
    """Installed memory; None if the system doesn't report it."""
    python: str
    mlx: str
    mlx_lm: str
    backend: str
    blas: str = ""
    """Library that multiplies float32 matrices on a CPU; empty for the one bundled with MLX."""


class ReadMachine(OneProcess, frozen=True):
    """Measure this machine's arithmetic and device, which takes about a second; answered by one `MachineRead`."""


class MachineRead(Record, frozen=True):
    """The machine, and measurements of its arithmetic and its device."""

    lasting: ClassVar[bool] = False
    machine: Machine
    numpy: str
    """Version of numpy."""
    memory_available: Count | None
    """Bytes that a program can take now; None if the system doesn't report it."""
    memory_for_models: Count | None
    """Bytes that new arrays may take on MLX's device; None if unknown."""
    product_error: Finite
    """Largest error of a float32 matrix product, as a share of its largest number."""
    product_type: str
    """Precision of float32 matrix products: `float32`, or `float16`, which has as many significant bits as TF32."""
    nothing_ms: Finite
    """Time of an evaluation with almost nothing to compute: the cost of each wait for the device."""
    late_token: bool
    """True if a graph reads the token that the host writes after building the graph, as runs on a GPU need."""


# ---- models that several processes compute ---------------------------------------------------------


class MeasureRanks(Measure, frozen=True):
    """Measure the memory of each rank, and its time in compute and communication; answered by one `RanksMeasured`.

    Fails if the model runs only in this process.
    """

    rounds: Count = 5
    """Number of rounds that count, after one warm-up round."""


Sharding = Literal["tensor", "pipeline"]
"""Division of a model over ranks. `tensor`: every rank has a part of each weight of all layers. `pipeline`: every rank
has some whole layers."""


class RankFacts(Struct, frozen=True):
    """One of the processes that compute a model together, at one moment."""

    rank: Count
    """Number of the rank, from 0; rank 0 receives the commands and makes all decisions."""
    host: str
    """Name of the rank's machine."""
    pid: Count
    first_layer: Count
    """Index of the rank's first layer, from 0, in the order in which the layers run."""
    layers: Count
    """Number of layers that the rank has; all of them with `tensor`."""
    weight_bytes: Count
    """Bytes of the rank's weights. Weights that every rank has whole (embedding, norms, head) count on each."""
    memory_bytes: Count
    """Resident bytes of the process, on macOS the peak so far; 0 if the system doesn't report them."""
    kv_used_bytes: Count
    """Bytes of the session's live cache on this rank that hold tokens or state."""
    kv_allocated_bytes: Count
    """Bytes that the same cache has allocated."""


class RanksLoaded(Record, frozen=True):
    """A model was loaded over several processes; comes after its `ModelFacts`, which describe the whole model."""

    sharding: Sharding
    ranks: tuple[RankFacts, ...]
    """The ranks in order; their caches are still empty."""


class RankTime(Struct, frozen=True):
    """Time of one token's forward pass on one rank, with a fence before and after each communication."""

    rank: Count
    compute_ms: Finite
    """Compute time in the best round: the one with the least compute time of all ranks together."""
    communication_ms: Finite
    """Communication time in the same round, including waits for other ranks."""
    compute_spread_ms: Finite
    """Difference between the longest and the shortest compute time of all counted rounds."""
    communication_spread_ms: Finite
    """Difference between the longest and the shortest communication time of all counted rounds."""


class RanksMeasured(Record, frozen=True):
    """The current memory of the ranks, and the time of one more token on each; the session doesn't change."""

    sharding: Sharding
    ranks: tuple[RankFacts, ...]
    tokens: Count
    """Number of tokens in the cache before the measured token."""
    rounds: Count
    """Number of rounds that count, after one warm-up round."""
    step_ms: Finite
    """Time of one token without fences on rank 0, the shortest of all counted rounds."""
    step_spread_ms: Finite
    """Difference between the longest and the shortest of these times."""
    times: tuple[RankTime, ...]
    """Times of each rank, in the order of the ranks."""
    slowest: Count
    """Rank with the longest compute time in the best round; the others wait for it."""
