"""The KV cache and the framework's memory at one moment."""

from __future__ import annotations

from engine.frozen import frozen
from engine.records.model import CacheKind


@frozen
class KVGroup:
    """The caches of one model that have the same kind and the same figures."""

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
