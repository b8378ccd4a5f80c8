"""The facts about a model, and the progress of its loading."""

from __future__ import annotations

from typing import Literal

from engine.frozen import frozen

CacheKind = Literal["plain", "quantized", "rotating", "recurrent", "chunked", "list", "other"]


@frozen
class SpecialToken:
    """A token that is a mark of the format rather than text."""

    id: int
    text: str
    """As it is written in a chat template."""
    roles: tuple[str, ...] = ()
    """What the tokenizer uses it for: `BOS`, `EOS`, `PAD`, `UNK` and the like; empty for most."""


@frozen
class ModelFacts:
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


@frozen
class Loading:
    """The progress of loading."""

    stage: Literal["import", "download", "ranks", "weights", "tokenizer"]
    done: int
    total: int
    """In the stage's own unit (bytes of a download, other ranks, tensors of the weights); 0 while unknown."""
    detail: str
    warning: str = ""
    """Why this model will be slow here; to be told before it is there."""
