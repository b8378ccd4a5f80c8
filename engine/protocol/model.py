"""Records of a loaded model, of its KV cache, and of rows of its logits."""

from __future__ import annotations

from typing import ClassVar, Literal

from msgspec import Struct

from engine.memory import MemoryOf, Room
from engine.protocol.base import Count, Finite, Packed, Record

CacheKind = Literal["plain", "quantized", "rotating", "recurrent", "chunked", "list", "other"]


class SpecialToken(Struct, frozen=True):
    """A token that is markup of the format instead of text."""

    id: Count
    text: str
    """Text of the token, as in a chat template."""
    roles: tuple[str, ...] = ()
    """The tokenizer's roles of the token, such as `BOS`, `EOS`, `PAD` or `UNK`; empty for most."""


class ModelFacts(Record, frozen=True):
    """Facts about a loaded model."""

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
    """Number of rows of the embedding: the model accepts the ids 0 to vocabulary - 1."""
    parameters: Count
    weight_bytes: Count
    dtype: str
    """Type that the model computes in: `bfloat16`, `float16` or `float32`."""
    quantization: str | None
    """Quantization of the weights in memory, such as `4-bit, group 64, affine`; None for plain weights."""
    context_window: Count | None
    """Size of the context window in tokens; None if the model's config has none (recurrent families)."""
    hard_window: bool
    """True if positions beyond the window have no embedding, so that it can't be exceeded."""
    cache_kinds: tuple[CacheKind, ...]
    """Kind of each cache; each layer with a KV cache or state has one."""
    kv_bytes_per_token: Count | None
    """Bytes that a token adds to all caches together; None if no cache grows with the text."""
    eos_ids: tuple[Count, ...]
    has_chat_template: bool
    backend: str
    """`cpu` or `gpu`, as MLX names its default device."""
    load_ms: Finite
    notes: tuple[str, ...] = ()
    """Settings that could not be applied, and differences from the files: one sentence each."""
    fingerprint: str = ""
    """Fingerprint of config, weights and adapter: equal for the same model; empty if unknown."""
    blas: str = ""
    """Name and version of the fast library that multiplies float32 matrices; empty for MLX's own."""
    stored: str = ""
    """Type or quantization of the weights in the files, such as `bfloat16` or `4-bit, group 64, affine`, if the model
    computes with another; otherwise empty."""
    special: tuple[SpecialToken, ...] = ()
    """Special tokens in the order of their ids, at most 1,000; those with a role or in the chat template have
    priority."""
    special_count: Count = 0
    """Number of special tokens, including those not listed."""
    chat_template: str = ""
    """Source of the jinja2 chat template, at most its first 65,536 characters; empty if the model has none, or has code
    instead of a template."""
    free_bytes: Count | None = None
    """Bytes that are free for the caches on the model's device after loading; None if unknown."""
    memory_of: MemoryOf = "machine"
    """Kind of the memory counted in `free_bytes`."""
    experts: Count | None = None
    """Number of experts of the largest mixture of experts; 0 if there is none, None if unknown."""
    sampling: tuple[tuple[str, Finite], ...] = ()
    """Sampling settings of the model's generation_config.json, by their names in `engine.settings.Settings`."""
    raw_prompts: bool = False
    """True if the model's generation_config.json asks for raw prompts, even if there is a chat template."""

    @property
    def ran(self) -> bool:
        """True if a model was loaded; False for a server's reply, since its model is unknown."""
        return self.layers > 0

    @property
    def attends(self) -> bool:
        """True if a layer may attend to earlier tokens; False if all layers are known to be recurrent."""
        return set(self.cache_kinds) != {"recurrent"}

    @property
    def chooses_or_keeps(self) -> bool:
        """True if a layer may choose experts or keep a recurrent state; False if it is known that no layer does."""
        return self.experts != 0 or not {*self.cache_kinds} <= {"plain", "quantized", "rotating", "chunked"}

    @property
    def room(self) -> Room | None:
        """Memory that is left for another model; None if unknown."""
        return None if self.free_bytes is None else Room(self.free_bytes, self.memory_of)

    @property
    def quantized(self) -> str:
        """Quantization of the weights, even if they are unpacked for the computation; empty for plain weights."""
        return self.quantization or (self.stored if "-bit" in self.stored else "")


class Loading(Record, frozen=True):
    """Progress of loading a model."""

    lasting: ClassVar[bool] = False
    stage: Literal["import", "download", "ranks", "weights", "tokenizer"]
    done: Count
    total: Count
    """Total in the stage's unit: bytes of a download, other ranks, or tensors of the weights; 0 if unknown."""
    detail: str
    warning: str = ""
    """Warning before loading that the model will be slow on this machine, with the reason; empty if it won't be."""


class KVGroup(Struct, frozen=True, gc=False):
    """Caches of one model with the same kind and the same sizes."""

    kind: CacheKind
    layers: tuple[Count, ...]
    """Indices of the caches, in the model's order."""
    held: Count
    """Number of tokens in each cache: fewer than `offset` if a window dropped some, 0 for a recurrent state."""
    limit: Count | None
    """Maximum number of tokens in each cache; None if it grows with the text."""
    used_bytes: Count
    """Bytes of tokens or states in each cache."""
    allocated_bytes: Count
    """Bytes that each cache has allocated."""


class KVReading(Struct, frozen=True, gc=False):
    """State of the KV cache, read from the cache objects."""

    offset: Count
    """Number of tokens of the current path that have run through the model."""
    used_bytes: Count
    allocated_bytes: Count
    groups: tuple[KVGroup, ...]
    kept_bytes: Count = 0
    """Bytes of KV of inactive branches, kept outside the cache to move back to them."""
    kept_budget: Count = 0
    """Maximum of `kept_bytes`; the least recently used KV is dropped first."""
    passed_tokens: Count = 0
    """Without a KV cache, number of tokens of the last forward pass, which is the whole path; `offset` is then 0. With
    a cache, 0."""
    passed_bytes: Count = 0
    """Bytes of keys, values and states that this forward pass computed and dropped."""


class Memory(Struct, frozen=True, gc=False):
    """Memory of MLX, as reported by `mlx.core`, and of the process."""

    active_bytes: Count
    peak_bytes: Count
    cache_bytes: Count = 0
    """Bytes of freed arrays that MLX keeps for new ones."""
    rss_bytes: Count = 0
    """Resident bytes of the process, on macOS the peak so far; 0 if the system doesn't report them."""


RowType = Literal["bfloat16", "float16", "float32"]


class LogitsRow(Record, frozen=True):
    """All of the model's logits after one node, exactly as passed to the sampler."""

    node: Count
    tokens: Count
    """Number of logits."""
    dtype: RowType
    """Smallest of these types that represents every logit exactly."""
    packed: Packed
    """The lowest byte of each number, in the order of the ids, then the next byte of each, up to the highest."""

    @property
    def nbytes(self) -> int:
        """Size of the packed numbers in bytes."""
        return len(self.packed)


class ModelVocabulary(Record, frozen=True):
    """The bytes of all tokens of a model, emitted once for all `LogitsRow` records."""

    tokens: Count
    """Number of token ids."""
    packed: Packed
    """The length of each token in bytes, as two bytes in little-endian order, by id; then the bytes of all tokens."""
    special: tuple[Count, ...]
    """Ids of the tokens that are markup of the format instead of text."""
    spared: tuple[Count, ...]
    """Ids that XTC never removes: end-of-sequence and newline."""

    @property
    def nbytes(self) -> int:
        """Size of the packed texts in bytes."""
        return len(self.packed)
