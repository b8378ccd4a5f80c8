"""Records of a model that is loaded, of its KV cache, and rows of its logits."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, NewType

from engine.frozen import frozen
from engine.memory import MemoryOf, Room
from engine.protocol.base import Record

CacheKind = Literal["plain", "quantized", "rotating", "recurrent", "chunked", "list", "other"]
Runs = Annotated[tuple[int, ...], "mostly one after another"]
"""Numbers that a trace writes as runs: `0-4 6 8-11`. In a list they would be the largest part of a step's reading."""


@frozen
class SpecialToken:
    """A token that is a mark of the format rather than text."""

    id: int
    text: str
    """As it is written in a chat template."""
    roles: tuple[str, ...] = ()
    """What the tokenizer uses it for: `BOS`, `EOS`, `PAD`, `UNK` and the like; empty for most."""


@frozen
class ModelFacts(Record):
    """The facts about a loaded model."""

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
    """Settings that could not be met, and differences from the files: one sentence each."""
    fingerprint: str = ""
    """Of config, weights and adapter: equal for the same model, empty where it isn't known."""
    blas: str = ""
    """What multiplies float32 matrices: name and version of a fast library; empty for what MLX brings."""
    stored: str = ""
    """How the files hold the weights, where the computation differs: `bfloat16` or `4-bit, group 64, affine`."""
    special: tuple[SpecialToken, ...] = ()
    """By id, 1,000 at most; none in a trace from before they were recorded."""
    special_count: int = 0
    """How many there are."""
    chat_template: str = ""
    """Its source in jinja2, or the beginning of a very long one; empty where there is none, or code in its place."""
    free_bytes: int | None = None
    """Memory that its caches could take where it computes, once it was loaded; None where that isn't known."""
    memory_of: MemoryOf = "machine"
    """Whose memory that is."""
    experts: int | None = None
    """Of its largest mixture of experts; 0 for none, None where that isn't known, as in a trace from before."""
    sampling: tuple[tuple[str, float], ...] = ()
    """The sampling settings of its generation_config.json, by their names in `engine.settings.Settings`."""
    raw_prompts: bool = False
    """True if the model's folder asks for prompts as raw text, though the model has a chat template."""

    @property
    def ran(self) -> bool:
        """True if there is a model; False where a server's reply is shown, of which no model is known."""
        return self.layers > 0

    @property
    def attends(self) -> bool:
        """True if a layer may look at earlier tokens; False where all of them are known to keep states instead."""
        return set(self.cache_kinds) != {"recurrent"}

    @property
    def chooses_or_keeps(self) -> bool:
        """True if a layer may choose experts or keep a state; False where it is known that none does."""
        return self.experts != 0 or not {*self.cache_kinds} <= {"plain", "quantized", "rotating", "chunked"}

    @property
    def room(self) -> Room | None:
        """The memory that another model may take beside it; None where that isn't known."""
        return None if self.free_bytes is None else Room(self.free_bytes, self.memory_of)

    @property
    def quantized(self) -> str:
        """How its weights are quantized, unpacked for the computation or not; empty for a model of plain weights."""
        return self.quantization or (self.stored if "-bit" in self.stored else "")


@frozen
class Loading(Record):
    """The progress of loading."""

    lasting: ClassVar[bool] = False
    stage: Literal["import", "download", "ranks", "weights", "tokenizer"]
    done: int
    total: int
    """In the stage's own unit (bytes of a download, other ranks, tensors of the weights); 0 while unknown."""
    detail: str
    warning: str = ""
    """Why this model will be slow here; to be shown before it is there."""


@frozen
class KVGroup:
    """The caches of one model that have the same kind and the same figures."""

    kind: CacheKind
    layers: Runs
    """Cache indices, in model order."""
    held: int
    """Tokens held by each: less than the offset where a window has dropped some, 0 for a recurrent state."""
    limit: int | None
    """Tokens that each can hold, None where it grows with the text."""
    used_bytes: int
    """Bytes in each that hold tokens or state."""
    allocated_bytes: int
    """Bytes that each has allocated."""


@frozen
class KVReading:
    """The KV cache at one moment, read off the cache objects."""

    offset: int
    """Tokens that have gone through the model along the current path."""
    used_bytes: int
    allocated_bytes: int
    groups: tuple[KVGroup, ...]
    kept_bytes: int = 0
    """KV of branches that the session left, kept outside the cache for moves back."""
    kept_budget: int = 0
    """Bytes that it may take; the least recently used is dropped first."""
    passed_tokens: int = 0
    """Without a KV cache: tokens that the last pass ran, the whole path; `offset` is then 0."""
    passed_bytes: int = 0
    """Keys, values and states that this pass made and dropped."""


@frozen
class Memory:
    """Memory of the framework, as `mlx.core` reports it, and of the process."""

    active_bytes: int
    peak_bytes: int
    cache_bytes: int = 0
    """Freed by arrays and kept by the framework for the next ones."""
    rss_bytes: int = 0
    """Of the process, resident; on macOS the peak so far, 0 where the system doesn't report it."""


Packed = NewType("Packed", bytes)
"""Bytes compressed with zlib, which nobody looks into before they are asked for; in a file they are base64."""
RowType = Literal["bfloat16", "float16", "float32"]


@frozen
class LogitsRow(Record):
    """The model's logits after one node, every one of them, exactly as the sampler got them."""

    node: int
    tokens: int
    """How many logits there are."""
    dtype: RowType
    """The smallest type that holds each of them exactly: that of the model's computation, or a wider one."""
    packed: Packed
    """First the lowest byte of each number, in the order of the ids, then the next byte of each, up to the highest."""

    @property
    def nbytes(self) -> int:
        """Bytes of the packed numbers."""
        return len(self.packed)


@frozen
class ModelVocabulary(Record):
    """The bytes of a model's tokens, once for all rows."""

    tokens: int
    """How many ids there are."""
    packed: Packed
    """How many bytes each token has, in two bytes, the lowest first, in the order of the ids; then all these bytes."""
    special: tuple[int, ...]
    """Ids of the tokens that are marks of the format rather than text."""
    spared: tuple[int, ...]
    """Ids that XTC never cuts: end-of-sequence and newline."""

    @property
    def nbytes(self) -> int:
        """Bytes of the packed texts."""
        return len(self.packed)
