"""Numbers in a record: the ranges of single ones, and arrays as bytes, too long for tuples of floats."""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

from msgspec import Meta, Struct

Finite = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
"""A number that is neither infinite nor NaN. A plain `float` may be: a model gives some tokens probability 0."""
Count = Annotated[int, Meta(ge=-1)]
"""A whole number from 0 up, or -1 for none. A plain `int` may be below that, as a difference may."""
MOST_PACKED = 2 * 2**20
"""Bytes of packed numbers in a recorded view of the model's inside. The bundled model's attention takes 64 KiB at 512
tokens, that of 32 layers with 32 heads 2 MiB at 1,024."""
Packed = Annotated[bytes, Meta(max_length=MOST_PACKED)]
"""Bytes compressed with zlib, which are unpacked when somebody reads them."""
Width = Literal[16, 32]


class Floats(Struct, frozen=True):
    """An array of IEEE 754 numbers, packed little-endian, the last axis together."""

    shape: tuple[Count, ...]
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
