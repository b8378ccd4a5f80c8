"""The bases of commands and records, their envelopes, the records that end a command, and numbers in a record."""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, ClassVar, Literal

from msgspec import Meta, Struct

# ---- numbers ---------------------------------------------------------------------------------------

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


# ---- commands and records --------------------------------------------------------------------------


class Command(Struct, frozen=True, tag_field="command", tag=True):
    """Base of all commands."""

    kind: ClassVar[str]
    """Name of the class, as records name the command."""
    needs_model: ClassVar[bool] = True
    """True if the engine refuses it while no model is loaded."""
    stoppable: ClassVar[bool] = False
    """True if escape on the main screen cancels it."""
    aside: ClassVar[bool] = False
    """True if the engine may answer it between the steps of a run: it needs no forward and changes nothing of the
    session."""
    over_ranks: ClassVar[bool] = True
    """True if it works on a model that several processes compute; not where it looks into the arrays of one."""

    def __init_subclass__(cls) -> None:
        cls.kind = cls.__name__


class Sent(Struct, frozen=True):
    """A command on its way to an engine."""

    command: Command
    id: Count
    """Unique among the commands of its session that have not ended."""


class Cancel(Command, frozen=True):
    """Stop another command, queued or running, at its next chunk or step; no record answers this one.

    If the target has ended, nothing happens.
    """

    needs_model: ClassVar[bool] = False
    target: Count
    """The id with which that command was sent."""


class Record(Struct, frozen=True, gc=False, tag_field="event", tag=True):
    """Base of what the engine emits, and of a user's marks on the tree."""

    lasting: ClassVar[bool] = True
    """True if a recording shows it: progress, and what answered a question of the moment, is for the sender alone."""


class Received(Struct, frozen=True):
    """A record on its way from an engine."""

    record: Record
    id: Count = 0
    """Id of the command that it answers; 0 if it answers none, as what the engine does in idle time."""


class Ended(Record, frozen=True):
    """A command is done; the engine waits for the next."""

    command: str
    """`Command.kind`."""
    cancelled: bool = False


class Failure(Record, frozen=True):
    """A command failed; the session's current node is the one before."""

    command: str
    """`Command.kind`."""
    message: str
    hint: str
    expected: bool = True
    """False for a bug of the program itself: then `trace` holds the traceback."""
    trace: str = ""
    error: str = ""
    """Name of the class in `engine.errors`; empty for a bug."""
    lost_rank: Count | None = None
    """The rank whose process was lost: this engine can't compute over ranks any more."""


class Measuring(Record, frozen=True):
    """The progress of a measurement."""

    lasting: ClassVar[bool] = False
    command: str
    """`Command.kind`."""
    done: Count
    total: Count
    detail: str
    """The next thing to be measured, in a few words."""
