"""Rows of logits and the vocabulary, recorded on request: what the sampler is asked is then answered with no model."""

from __future__ import annotations

from typing import Literal, NewType

from engine.frozen import frozen

Packed = NewType("Packed", bytes)
"""Bytes compressed with zlib, which nobody looks into before they are asked for; in a file they are base64."""
RowType = Literal["bfloat16", "float16", "float32"]


@frozen
class LogitsRow:
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
class ModelVocabulary:
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
