"""One class a kind of KV cache, and the type map that finds it: all that this program knows of mlx_lm's cache classes.

To add a kind, write a file with a subclass of `Kind` and add its line to `KINDS`.
"""

from __future__ import annotations

from typing import Any

from engine.cache.kinds.chunked import Chunked
from engine.cache.kinds.composite import Composite
from engine.cache.kinds.kind import Kind, Snapshot, arrays
from engine.cache.kinds.plain import Plain
from engine.cache.kinds.quantized import Quantized
from engine.cache.kinds.recurrent import Recurrent
from engine.cache.kinds.rotating import Rotating
from engine.protocol import CacheKind

__all__ = ["GENERAL", "KINDS", "Kind", "Snapshot", "arrays", "kind_named", "kind_of"]

GENERAL = Kind()
"""What every class outside the map is treated as."""


def kind_of(cache: Any) -> Kind:
    """The kind of one of mlx_lm's cache objects: that of its class, else of the first class in the map that it is."""
    kind = KINDS.get(type(cache))
    return kind or next((KINDS[known] for known in KINDS if isinstance(cache, known)), GENERAL)


def kind_named(name: CacheKind) -> Kind:
    """The kind that a record names."""
    return next((kind for kind in KINDS.values() if kind.name == name), GENERAL)


KINDS: dict[type, Kind] = {
    kind.cache_class: kind
    for kind in (
        Quantized(),
        Rotating(),
        Plain(),
        Recurrent(),
        Chunked(),
        Composite(kind_of),
    )
}
"""The type map, from mlx_lm's class."""
