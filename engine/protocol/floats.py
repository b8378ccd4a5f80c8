"""Numbers in a record: those that may be infinite or below 0; arrays, too many for a tuple of floats, as bytes."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

from engine.frozen import frozen

Endless = Annotated[float, "may be infinite, or NaN"]
"""A number that may be infinite, or NaN, where a model gives a token probability 0; all others are finite."""
Signed = Annotated[int, "may be below 0"]
"""A whole number that may be below 0, as a difference may; all others are from -1 up."""
Width = Literal[16, 32]


@frozen
class Floats:
    """An array of IEEE 754 numbers, packed little-endian, the last axis together."""

    shape: tuple[int, ...]
    packed: bytes
    bits: int = 32
    """16 or 32 for each number."""

    @property
    def fits(self) -> bool:
        """True if the bytes are those of the shape: a file may say otherwise."""
        return self.bits in (16, 32) and len(self.packed) == math.prod(self.shape) * self.bits // 8

    def row(self, *index: int) -> tuple[float, ...]:
        """One row along the last axis; empty where the array lacks it.

        Args:
            index: One for each axis but the last.
        """
        if len(index) != len(self.shape) - 1:
            return ()
        length, place = self.shape[-1], 0
        for at, count in zip(index, self.shape, strict=False):
            if not 0 <= at < count:
                return ()
            place = place * count + at
        return self.stretch(place * length, length)

    def stretch(self, first: int, count: int) -> tuple[float, ...]:
        """Some numbers one after another, whatever the shape; empty where the array lacks them.

        Args:
            first: The first one's place in the whole array.
            count: How many.
        """
        if not self.fits or min(first, count) < 0 or first + count > math.prod(self.shape):
            return ()
        return struct.unpack_from(f"<{count}{_CODES[self.bits]}", self.packed, first * self.bits // 8)


_CODES = {16: "e", 32: "f"}


def floats(values: Iterable[float], shape: Sequence[int], bits: Width = 32) -> Floats:
    """Pack numbers.

    Args:
        values: As many as the shape has, the last axis together.
        shape: Of the array.
        bits: For each number.
    """
    numbers = tuple(values)
    return Floats(tuple(shape), struct.pack(f"<{len(numbers)}{_CODES[bits]}", *numbers), bits)
