"""Commands and records of measurements: race, profile, roofline, KV bits."""

from __future__ import annotations

from typing import ClassVar, Literal

from engine.frozen import frozen
from engine.protocol.base import Command, Record
from engine.protocol.floats import Endless


@frozen
class Measure(Command):
    """Base of measurements on separate caches; answered by `Measuring` records and those that the class names."""


@frozen
class Race(Measure):
    """Race with a KV cache and without one; answered by `RaceOpened`, `RaceStep` records and `RaceEnded`."""

    first: int = 16
    """Tokens of the sequence before the first step that is measured."""
    last: int = 128
    """Tokens after the last; at most the context window."""


@frozen
class Profile(Measure):
    """Measure the parts of the next step with fences; answered by one `Profiled`."""

    over_ranks: ClassVar[bool] = False
    repeats: int = 5
    """Counted rounds, after the warm-up."""


@frozen
class CaptureMetal(Measure):
    """Have Metal record one step, for Xcode; answered by one `MetalCaptured`. Refused where MLX has no Metal."""

    over_ranks: ClassVar[bool] = False
    path: str
    """Of the file, which is not there yet: its name ends with `.gputrace`."""


@frozen
class MetalCaptured(Record):
    """Metal recorded a step."""

    lasting: ClassVar[bool] = False
    path: str
    ms: float
    """Of the step, while it was recorded."""


@frozen
class MeasureRoofline(Measure):
    """Compare prefill and decode with the machine's limits; answered by one `RooflineMeasured`."""

    over_ranks: ClassVar[bool] = False


@frozen
class CompareKV(Measure):
    """Compute the path with quantized KV caches; answered by `KVCompared` after each precision."""

    over_ranks: ClassVar[bool] = False
    bits: tuple[int, ...] = (8, 4)
    group_size: int | None = None
    """None for 64, or 32 where the heads are smaller."""


@frozen
class RaceOpened(Record):
    """A race begins: the same tokens with a KV cache and without one, both in separate caches."""

    node: int
    """The session's current node, before and after."""
    first: int
    """Tokens of the sequence before the first step that is measured."""
    last: int
    """Tokens of the sequence after the last."""
    given: int
    """Tokens of the path: both lanes follow it to its end, then they continue by themselves."""
    how: str
    """How the milliseconds are taken, as sentences."""


@frozen
class RaceStep(Record):
    """Both lanes took one step with the same token."""

    tokens: int
    """Of the sequence after it: the lane without a cache ran all of them, the other one the last alone."""
    id: int
    """The token that the step ran."""
    text: str
    """The characters that it finished."""
    cached_ms: float
    uncached_ms: float
    cached_total_ms: float
    """Of all steps so far."""
    uncached_total_ms: float
    cached_pick: int
    """The sampler's next token in the lane with the cache; both lanes continue with it, beyond the path's end."""
    uncached_pick: int
    """The sampler's next token in the other, with the same draw."""
    largest_difference: Endless
    """Of the two lanes' logits, absolute."""
    kv_bytes: int
    """Held by the cache."""
    passed_bytes: int
    """Keys and values that the pass without a cache made and dropped."""

    @property
    def equal(self) -> bool:
        """True if both lanes take the same token next."""
        return self.cached_pick == self.uncached_pick


@frozen
class RaceEnded(Record):
    """A race reached its length."""

    steps: int
    cached_total_ms: float
    uncached_total_ms: float
    differences: tuple[int, ...]
    """Lengths (as `RaceStep.tokens`) after which the lanes took other tokens; empty where all are equal."""
    largest_difference: Endless
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


@frozen
class ProfilePart:
    """One part of a step, fenced: its inputs were evaluated before its time, its outputs within it."""

    name: str
    """Attribute path in the model: `model.layers.3.self_attn`; `sampling` and `detokenizing` for these."""
    role: Role
    layer: int | None
    """None outside the layers."""
    ms: float
    """Without the parts inside it; a mean over the same rounds as the whole step."""


@frozen
class Profiled(Record):
    """One step taken apart, on a copy of the cache."""

    node: int
    """The session's current node: the step after it was measured."""
    tokens: int
    """In the context before the step."""
    repeats: int
    parts: tuple[ProfilePart, ...]
    """In the order in which they ran."""
    fenced_ms: float
    """The whole step with all fences: the mean of the middle half of the repeats by their total."""
    unfenced_ms: float
    """The same step without them, measured in turn with it; the same mean."""
    how: str
    """How it was measured, as sentences."""

    @property
    def other_ms(self) -> float:
        """The time outside the parts: masks, scalings and copies between them, and the program's own calls."""
        return max(0.0, self.fenced_ms - sum(part.ms for part in self.parts))


@frozen
class Work:
    """One forward: what it must read and compute by formula, and how long it took."""

    tokens: int
    """Of the forward."""
    context: int
    """Tokens held when it ended."""
    weight_bytes: int
    """Of the weights that it reads once."""
    kv_bytes: int
    """Of keys, values and states that it reads."""
    flops: int
    """Multiplications and additions, counted as two."""
    ms: float
    """The best of the repeats, unfenced: what the machine can do. All rates are of it."""
    median_ms: float
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


@frozen
class RooflineMeasured(Record):
    """Prefill and decode of this model against the limits of this machine, both as MLX reaches them."""

    node: int
    bandwidth_gbs: float
    """The most bytes a second of several ways to read a large array."""
    bandwidth_how: str
    matmul_gflops: float
    """The most operations a second of a matrix product in the weights' own type."""
    matmul_how: str
    decode: Work
    prefill: Work | None
    """None where the path is a single token."""
    active_parameters: int
    """That take part in a token."""
    how: str
    """The formulas, as sentences."""
    notes: tuple[str, ...] = ()
    """Facts that are not known of this model, and the assumptions instead."""
    ms: float = 0.0
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


@frozen
class KVCost:
    """The KV cache of one path at one precision."""

    bits: int
    """Of each number: those of the model's own type, or of quantized ones."""
    group_size: int | None
    """Numbers that share a scale and a bias; None where nothing is quantized."""
    formula_bytes: int
    """Of the tokens held, by formula."""
    used_bytes: int
    """Read off the arrays."""
    allocated_bytes: int
    largest_change: Endless
    """Of the logits after the path, absolute, against the model's own type."""
    mean_change: Endless
    same_top: bool
    """True if the most probable token is the same."""
    ms: float
    """To compute the path."""
    refused: str = ""
    """Why this model can't have such a cache, and what to use instead; then all figures are 0."""
    note: str = ""
    """Which caches of the model are not quantized."""


@frozen
class KVCompared(Record):
    """The path in caches of several precisions; emitted after each of them, with all results so far."""

    node: int
    tokens: int
    costs: tuple[KVCost, ...]
    """The model's own type first."""
    formula: str
    """In words and in this model's numbers."""
    last: bool


@frozen
class Machine:
    """The machine and the versions with which figures were measured."""

    system: str
    processor: str
    cores: int
    memory_bytes: int | None
    """None where the system doesn't report it."""
    python: str
    mlx: str
    mlx_lm: str
    backend: str
    blas: str = ""
    """What multiplies float32 matrices on a CPU; empty for what MLX brings."""


@frozen
class ReadMachine(Command):
    """Measure what the numbers of a model depend on here, in a second; answered by one `MachineRead`."""

    over_ranks: ClassVar[bool] = False


@frozen
class MachineRead(Record):
    """The machine, and what its arithmetic and its device do."""

    lasting: ClassVar[bool] = False
    machine: Machine
    numpy: str
    """Its version."""
    memory_available: int | None
    """Bytes that a program can take now; None where the system doesn't tell."""
    memory_for_models: int | None
    """Bytes that MLX lets the arrays of models take on its device."""
    product_error: float
    """Of a float32 product of two matrices, as a share of its largest number."""
    product_type: str
    """The type that float32 products are as exact as: `float32`, or `float16`, which has the digits of TF32."""
    nothing_ms: float
    """Of an evaluation with next to nothing to compute: what each waiting for the device costs."""
    late_token: bool
    """True where a forward reads the token that the host writes after the build of its graph, as runs on a GPU do."""
