"""What is known of a model that is on the disk, and whether it fits in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from engine.frozen import frozen

Source = Literal["bundled", "recent", "given", "hub", "LM Studio"]
WORKING_SHARE = 1.1
"""Memory of a loaded model, in bytes of its weights: beside these the program and a chunk's activations take some."""


@frozen
class StoredWeights:
    """What the headers of a model's files say of its weights."""

    parameters: int
    """A quantized weight counts as the numbers that it stands for."""
    size: int
    """Bytes of all tensors."""
    bits: tuple[int, ...]
    """Of quantized weights, those of most parameters first; empty where none are quantized."""
    group_size: int | None
    """Numbers that share a scale, where they do."""
    dtype: str
    """`BF16` and the like: of the scales, or of most weights that are not quantized."""

    @property
    def bits_a_parameter(self) -> float:
        """Bits that a parameter takes on the average, its share of the scales with it."""
        return self.size * 8 / self.parameters if self.parameters else 0.0


@frozen
class KVSize:
    """Bytes of the KV cache, in the type of the files."""

    growing: int
    """Added by every token, in the layers that keep all of them."""
    windowed: int = 0
    """Added by every token up to `window`, in the layers that keep the last ones alone."""
    window: int = 0
    """Tokens."""

    def at(self, tokens: int) -> int:
        """Bytes after so many tokens."""
        return self.growing * tokens + self.windowed * min(tokens, self.window)

    def tokens_in(self, room: int, most: int) -> int:
        """How many tokens fit in some bytes.

        Args:
            room: Bytes.
            most: Tokens at most.
        """
        if self.at(most) <= room:
            return most
        in_window = min(room // max(1, self.growing + self.windowed), self.window)
        if in_window < self.window or not self.growing:
            return max(0, in_window)
        return max(0, (room - self.at(self.window)) // self.growing + self.window)


@frozen
class DiskModel:
    """One model of a list."""

    name: str
    """A hub id, or the last parts of the path; not yet printable."""
    path: Path
    source: Source
    hub_id: str = ""
    """Of what came from the hub; not yet printable."""
    family: str = ""
    """`model_type` of its config.json, empty where it can't be read; not yet printable."""
    layers: int | None = None
    context: int | None = None
    """Tokens, None where the config states none."""
    size: int = 0
    """Bytes of its weights' files."""
    weights: StoredWeights | None = None
    kv: KVSize | None = None
    """None where the headers don't tell."""
    known: bool | None = None
    """Whether mlx_lm has this family; None where mlx_lm isn't installed."""
    problem: str = ""
    """Why it can't be loaded, and what to do about it: a sentence or two; not yet printable. Empty where it can be."""
    incomplete: bool = False
    """Whether files of it are missing."""
    notes: tuple[str, ...] = ()
    """What else there is to know, a sentence each; not yet printable."""

    @property
    def downloads(self) -> bool:
        """Whether opening it downloads what is missing."""
        return self.incomplete and bool(self.hub_id)

    @property
    def spec(self) -> str:
        """What opens it: its path, `pocket`, or its hub id where files of it are missing; empty where nothing does."""
        if self.downloads:
            return self.hub_id
        if self.problem:
            return ""
        return "pocket" if self.source == "bundled" else str(self.path)

    @property
    def bits(self) -> str:
        """How its weights are stored: `4-bit`, `4/6-bit`, `bf16`; empty where that isn't known."""
        if self.weights is None:
            return ""
        if self.weights.bits:
            return "/".join(map(str, self.weights.bits[:2])) + "-bit"
        return self.weights.dtype.lower()

    def fits(self, available: int | None) -> int | None:
        """Tokens of context that fit in memory beside the weights, 0 where the weights don't: an estimate.

        Args:
            available: Bytes of memory that a program can take.

        Returns:
            None where it can't be told.
        """
        if available is None or self.weights is None:
            return None
        room = available - int(self.weights.size * WORKING_SHARE)
        if room <= 0:
            return 0
        return self.kv.tokens_in(room, self.context) if self.kv and self.context else None
