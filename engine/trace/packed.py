"""Candidates of a long session in memory: as bytes, until somebody looks.

The twenty candidates of a step are 4.5 KB as objects, most of what a session of 20,000 steps holds. Packed they are
0.6 KB,
and 50 us are spent when they are read; those read last stay unpacked.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, overload

from engine.records import Candidate, Distribution
from engine.trace.candidates import read, write


class PackedCandidates(Sequence[Candidate]):
    """Equal to the tuple of the same candidates, and read as it is.

    Args:
        candidates: What it is made of.
    """

    __slots__ = ("_columns",)

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self._columns = marshal.dumps(write(candidates))

    def __len__(self) -> int:
        return len(_unpacked(self._columns))

    @overload
    def __getitem__(self, place: int) -> Candidate: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[Candidate, ...]: ...

    def __getitem__(self, place: int | slice) -> Candidate | tuple[Candidate, ...]:
        return _unpacked(self._columns)[place]

    def __iter__(self) -> Iterator[Candidate]:
        return iter(_unpacked(self._columns))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, tuple | PackedCandidates) and _unpacked(self._columns) == tuple(other)

    def __hash__(self) -> int:
        return hash(_unpacked(self._columns))

    def __repr__(self) -> str:
        return repr(_unpacked(self._columns))


@lru_cache(maxsize=64)
def _unpacked(columns: bytes) -> tuple[Candidate, ...]:
    return read(marshal.loads(columns))[0]


def pack(record: object) -> None:
    """Pack the candidates of a record's distributions where they are, those of a trace that wait unread excepted.

    Nobody can tell but by the memory: a thread that reads them meanwhile has the one form or the other.
    """
    for name in ("choice", "next"):
        distribution: Any = getattr(record, name, None)
        if type(distribution) is Distribution and type(distribution.candidates) is tuple:
            object.__setattr__(distribution, "candidates", PackedCandidates(distribution.candidates))
