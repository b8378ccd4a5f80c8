"""What ranks compare after an operation: the logits that they computed, and what their caches hold.

The sums of MLX's ring are equal to the bit on all ranks: 42 of 42 sums over 2, 3 and 4 ranks, of 1 to 1,000,003
numbers of float32, bfloat16 and float16. All that follows a sum is computed by each rank alike, so that on one
machine the logits must be equal to the bit. Machines of other kinds may round in other ways: there they must agree
within `TOLERANCE`.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import mlx.core as mx
import numpy as np

from engine.cache.kind import Reading
from engine.cache.live import KV, grouped
from engine.frozen import frozen

TOLERANCE = 0.05
"""Of the largest logit of a row, between machines, as a share of the largest magnitude of both."""


@frozen
class Print:
    """What tells rows of logits from others."""

    crc: int
    largest: float

    @classmethod
    def of(cls, logits: mx.array) -> Print:
        """That of the logits after the last token of each row; evaluated, shape (rows, n, vocabulary)."""
        rows = np.array(logits[:, -1].astype(mx.float32))
        return cls(zlib.crc32(rows.tobytes()), float(rows.max()))

    def disagreement(self, other: Print, same_machine: bool) -> str:
        """In which way another rank's logits are not these; empty where they are."""
        if self.crc == other.crc:
            return ""
        difference = abs(self.largest - other.largest)
        bound = TOLERANCE * max(1.0, abs(self.largest), abs(other.largest))
        if not same_machine and difference <= bound:
            return ""
        return f"computed other logits (the largest is {other.largest:.6g}, not {self.largest:.6g})"


@frozen
class RankHeld:
    """What one rank's caches hold, and what can be done with them, after an operation."""

    offset: int
    readings: tuple[Reading, ...]
    steps_back: bool
    """`KV.can_step_back`."""
    partial_restore: bool
    chunks_matter: bool
    quantized: tuple[bool, ...]
    unsupported: tuple[str, str] | None
    """`KV.without_snapshots`."""
    bytes_per_token: int


def told(kv: KV) -> dict[str, Any]:
    """What a rank answers of its caches, in values of JSON."""
    groups = [[list(reading), places] for reading, places in grouped(kv.readings()).items()]
    return {
        "offset": kv.offset,
        "groups": groups,
        "back": kv.can_step_back(),
        "part": kv.partial_restore(),
        "chunks": kv.chunks_matter,
        "quantized": kv.quantized(),
        "without": kv.without_snapshots(),
        "token": kv.bytes_per_token() or 0,
    }


def held(answer: Mapping[str, Any]) -> RankHeld:
    """The inverse of `told`."""
    placed = {place: tuple(reading) for reading, places in answer["groups"] for place in places}
    without = answer["without"]
    return RankHeld(
        offset=answer["offset"],
        readings=tuple(placed[place] for place in range(len(placed))),
        steps_back=answer["back"],
        partial_restore=answer["part"],
        chunks_matter=answer["chunks"],
        quantized=tuple(answer["quantized"]),
        unsupported=None if without is None else (without[0], without[1]),
        bytes_per_token=answer["token"],
    )
