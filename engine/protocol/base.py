"""Base classes of commands and records, their envelopes, the records that end a command, and number types."""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, ClassVar, Literal

from msgspec import Meta, Struct

# ---- numbers ---------------------------------------------------------------------------------------

Finite = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
"""A number that is neither infinite nor NaN. A plain `float` may be infinite: the logprob of probability 0 is."""
Count = Annotated[int, Meta(ge=-1)]
"""An integer of at least 0, or -1 for none. A plain `int` may be any integer, such as a difference."""
MOST_PACKED = 2 * 2**20
"""Maximum size in bytes of packed numbers in a record. The bundled model's attention takes 64 KiB at 512 tokens; with
32 layers of 32 heads it takes 2 MiB at 1,024."""
Packed = Annotated[bytes, Meta(max_length=MOST_PACKED)]
"""Bytes compressed with zlib; the reader decompresses them."""
Width = Literal[16, 32]


class Floats(Struct, frozen=True):
    """An array of IEEE 754 numbers, packed as little-endian bytes in row-major order."""

    shape: tuple[Count, ...]
    packed: bytes
    bits: int = 32
    """Size of each number: 16 or 32 bits."""

    def __repr__(self) -> str:
        return f"<Floats {' × '.join(map(str, self.shape))}>"

    @property
    def fits(self) -> bool:
        """True if the shape and the number of bytes agree, which a file doesn't guarantee."""
        return self.bits in (16, 32) and len(self.packed) == math.prod(self.shape) * self.bits // 8

    def row(self, *index: int) -> tuple[float, ...]:
        """One row along the last axis; empty if the array has no such row.

        Args:
            index: One index for each axis except the last.
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
        """Consecutive numbers of the flattened array; empty if the array doesn't have all of them.

        Args:
            first: Index of the first number.
            count: Number of numbers.
        """
        if not self.fits or min(first, count) < 0 or first + count > math.prod(self.shape):
            return ()
        return struct.unpack_from(f"<{count}{_CODES[self.bits]}", self.packed, first * self.bits // 8)


_CODES = {16: "e", 32: "f"}


def floats(values: Iterable[float], shape: Sequence[int], bits: Width = 32) -> Floats:
    """Pack numbers.

    Args:
        values: The numbers in row-major order; their count must fit the shape.
        shape: Shape of the array.
        bits: Size of each number, in bits.
    """
    numbers = tuple(values)
    return Floats(tuple(shape), struct.pack(f"<{len(numbers)}{_CODES[bits]}", *numbers), bits)


# ---- commands and records --------------------------------------------------------------------------


class Command(Struct, frozen=True, tag_field="command", tag=True):
    """Base of all commands."""

    kind: ClassVar[str]
    """Name of the command's class; records refer to the command by it."""
    needs_model: ClassVar[bool] = True
    """True if the engine refuses the command while no model is loaded."""
    stoppable: ClassVar[bool] = False
    """True if escape on the main screen cancels the command."""
    interleavable: ClassVar[bool] = False
    """True if the engine may answer the command between the steps of a run: it needs no forward pass and doesn't change
    the session."""
    over_ranks: ClassVar[bool] = True
    """True if the command also works for a model that several processes compute. False if it needs all arrays of the
    model in one process."""

    def __init_subclass__(cls) -> None:
        cls.kind = cls.__name__


class Stoppable(Command, frozen=True):
    """Base of commands that escape on the main screen cancels."""

    stoppable: ClassVar[bool] = True


class Interleavable(Command, frozen=True):
    """Base of commands that the engine may answer between the steps of a run."""

    interleavable: ClassVar[bool] = True


class OneProcess(Command, frozen=True):
    """Base of commands that need all arrays of the model in one process."""

    over_ranks: ClassVar[bool] = False


class Sent(Struct, frozen=True):
    """A command on its way to an engine."""

    command: Command
    id: Count
    """Id that is unique among the unfinished commands of the session."""


class Cancel(Command, frozen=True):
    """Stop another command, queued or running, at its next chunk or step; no record answers this command.

    If the target has ended, nothing happens.
    """

    needs_model: ClassVar[bool] = False
    target: Count
    """Id that the command to cancel was sent with."""


class Record(Struct, frozen=True, gc=False, tag_field="event", tag=True):
    """Base of the records that the engine emits, and of the user's marks on the tree."""

    lasting: ClassVar[bool] = True
    """True if a replayed recording shows the record; False for progress and for answers that only the sender needs."""


class Received(Struct, frozen=True):
    """A record on its way from an engine."""

    record: Record
    id: Count = 0
    """Id of the command that the record answers; 0 for none, such as for a record from the engine's idle time."""


class Ended(Record, frozen=True):
    """A command is done, and the engine continues with the next one."""

    command: str
    """`Command.kind` of the command."""
    cancelled: bool = False


class Failure(Record, frozen=True):
    """A command failed. The session stays at the last node that it reached. After a failed `Load` there is no model;
    after a failed `Restore` there may be no prompt."""

    command: str
    """`Command.kind` of the command."""
    message: str
    hint: str
    expected: bool = True
    """False for a bug of the program itself; `trace` then contains the traceback."""
    trace: str = ""
    error: str = ""
    """Name of the exception's class in `engine.errors`; empty for a bug."""
    lost_rank: Count | None = None
    """Rank that was lost, after which this engine can't compute over ranks any more; None if none was lost."""


class Measuring(Record, frozen=True):
    """The progress of a measurement."""

    lasting: ClassVar[bool] = False
    command: str
    """`Command.kind` of the command."""
    done: Count
    total: Count
    detail: str
    """Short description of the next thing to measure."""
