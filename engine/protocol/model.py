"""Records of a model that is loaded, of its KV cache, and rows of its logits."""

from __future__ import annotations

from typing import ClassVar, Literal

from msgspec import Struct

from engine.memory import MemoryOf, Room
from engine.protocol.base import Count, Finite, Packed, Record

CacheKind = Literal["plain", "quantized", "rotating", "recurrent", "chunked", "list", "other"]


class SpecialToken(Struct, frozen=True):
    """A token that is a mark of the format rather than text."""

    id: Count
    text: str
    """As it is written in a chat template."""
    roles: tuple[str, ...] = ()
    """What the tokenizer uses it for: `BOS`, `EOS`, `PAD`, `UNK` and the like; empty for most."""


class ModelFacts(Record, frozen=True):
    """The facts about a loaded model."""

    name: str
    """Short name for the header: `pocket`, a directory's name, or a hub id."""
    path: str
    family: str
    """`model_type` of config.json."""
    layers: Count
    heads: Count | None
    kv_heads: Count | None
    head_size: Count | None
    hidden_size: Count | None
    vocabulary: Count
    """Rows of the embedding: ids 0 to vocabulary - 1 may reach the model."""
    parameters: Count
    weight_bytes: Count
    dtype: str
    """Of the computation: `bfloat16`, `float16` or `float32`."""
    quantization: str | None
    """`4-bit, group 64, affine`, or None for plain weights."""
    context_window: Count | None
    """Tokens, None where the model states none (recurrent families)."""
    hard_window: bool
    """True where positions past the window have no embedding, so that it can't be passed."""
    cache_kinds: tuple[CacheKind, ...]
    """One for each cache, which is one for each layer that keeps state."""
    kv_bytes_per_token: Count | None
    """Bytes that one more token adds to all caches together, None where the kind doesn't grow."""
    eos_ids: tuple[Count, ...]
    has_chat_template: bool
    backend: str
    """`cpu` or `gpu`, as MLX names its default device."""
    load_ms: Finite
    notes: tuple[str, ...] = ()
    """Settings that could not be met, and differences from the files: one sentence each."""
    fingerprint: str = ""
    """Of config, weights and adapter: equal for the same model, empty where it isn't known."""
    blas: str = ""
    """What multiplies float32 matrices: name and version of a fast library; empty for what MLX brings."""
    stored: str = ""
    """How the files hold the weights, where the computation differs: `bfloat16` or `4-bit, group 64, affine`."""
    special: tuple[SpecialToken, ...] = ()
    """The special tokens by id, at most 1,000."""
    special_count: Count = 0
    """Number of special tokens, also beyond those listed."""
    chat_template: str = ""
    """Its source in jinja2, or the beginning of a very long one; empty where there is none, or code in its place."""
    free_bytes: Count | None = None
    """Memory that its caches could take where it computes, once it was loaded; None where that isn't known."""
    memory_of: MemoryOf = "machine"
    """Whose memory that is."""
    experts: Count | None = None
    """Experts of its largest mixture; 0 for none, None if that isn't known."""
    sampling: tuple[tuple[str, Finite], ...] = ()
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


class Loading(Record, frozen=True):
    """The progress of loading."""

    lasting: ClassVar[bool] = False
    stage: Literal["import", "download", "ranks", "weights", "tokenizer"]
    done: Count
    total: Count
    """In the stage's own unit (bytes of a download, other ranks, tensors of the weights); 0 while unknown."""
    detail: str
    warning: str = ""
    """Why this model will be slow here; to be shown before it is there."""


class KVGroup(Struct, frozen=True, gc=False):
    """The caches of one model that have the same kind and the same figures."""

    kind: CacheKind
    layers: tuple[Count, ...]
    """Cache indices, in model order."""
    held: Count
    """Tokens held by each: less than the offset where a window has dropped some, 0 for a recurrent state."""
    limit: Count | None
    """Tokens that each can hold, None where it grows with the text."""
    used_bytes: Count
    """Bytes in each that hold tokens or state."""
    allocated_bytes: Count
    """Bytes that each has allocated."""


class KVReading(Struct, frozen=True, gc=False):
    """The KV cache at one moment, read off the cache objects."""

    offset: Count
    """Tokens that have gone through the model along the current path."""
    used_bytes: Count
    allocated_bytes: Count
    groups: tuple[KVGroup, ...]
    kept_bytes: Count = 0
    """KV of branches that the session left, kept outside the cache for moves back."""
    kept_budget: Count = 0
    """Bytes that it may take; the least recently used is dropped first."""
    passed_tokens: Count = 0
    """Without a KV cache: tokens that the last pass ran, the whole path; `offset` is then 0."""
    passed_bytes: Count = 0
    """Keys, values and states that this pass made and dropped."""


class Memory(Struct, frozen=True, gc=False):
    """Memory of the framework, as `mlx.core` reports it, and of the process."""

    active_bytes: Count
    peak_bytes: Count
    cache_bytes: Count = 0
    """Freed by arrays and kept by the framework for the next ones."""
    rss_bytes: Count = 0
    """Of the process, resident; on macOS the peak so far, 0 where the system doesn't report it."""


RowType = Literal["bfloat16", "float16", "float32"]


class LogitsRow(Record, frozen=True):
    """The model's logits after one node, every one of them, exactly as the sampler got them."""

    node: Count
    tokens: Count
    """How many logits there are."""
    dtype: RowType
    """The smallest type that holds each of them exactly: that of the model's computation, or a wider one."""
    packed: Packed
    """First the lowest byte of each number, in the order of the ids, then the next byte of each, up to the highest."""

    @property
    def nbytes(self) -> int:
        """Bytes of the packed numbers."""
        return len(self.packed)


class ModelVocabulary(Record, frozen=True):
    """The bytes of a model's tokens, once for all rows."""

    tokens: Count
    """How many ids there are."""
    packed: Packed
    """How many bytes each token has, in two bytes, the lowest first, in the order of the ids; then all these bytes."""
    special: tuple[Count, ...]
    """Ids of the tokens that are marks of the format rather than text."""
    spared: tuple[Count, ...]
    """Ids that XTC never cuts: end-of-sequence and newline."""

    @property
    def nbytes(self) -> int:
        """Bytes of the packed texts."""
        return len(self.packed)
