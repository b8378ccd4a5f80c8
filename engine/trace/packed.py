"""Candidates of a long session in memory: as bytes, until somebody looks.

The twenty candidates of a step are 4.5 KB as objects, most of what a session of 20,000 steps holds. Packed they are
0.5 KB. A trace's columns would be as small, and take eight times as long to read.
"""

from __future__ import annotations

import marshal
import math
import zlib
from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, overload

from engine.protocol import Candidate, Distribution


class PackedCandidates(Sequence[Candidate]):
    """Equal to the tuple of the same candidates, and read as it is.

    Args:
        candidates: What it is made of.
    """

    __slots__ = ("_data",)

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self._data = zlib.compress(marshal.dumps(_columns(candidates)), 1)

    def __len__(self) -> int:
        return len(_unpacked(self._data))

    @overload
    def __getitem__(self, place: int) -> Candidate: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[Candidate, ...]: ...

    def __getitem__(self, place: int | slice) -> Candidate | tuple[Candidate, ...]:
        return _unpacked(self._data)[place]

    def __iter__(self) -> Iterator[Candidate]:
        return iter(_unpacked(self._data))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, tuple | PackedCandidates) and _unpacked(self._data) == tuple(other)

    def __hash__(self) -> int:
        return hash(_unpacked(self._data))

    def __repr__(self) -> str:
        return repr(_unpacked(self._data))


def _columns(candidates: Sequence[Candidate]) -> tuple[Any, ...]:
    """What is not as it usually is has a column; None where it follows from others."""
    texts, raws = [each.text for each in candidates], [each.raw for each in candidates]
    logprobs, probs = [each.logprob for each in candidates], [each.prob for each in candidates]
    sampled = [each.sampler_prob for each in candidates]
    return (
        tuple(each.id for each in candidates),
        tuple(texts),
        None if raws == [text.encode("utf-8", "surrogatepass") for text in texts] else tuple(raws),
        tuple(each.special for each in candidates),
        _floats(logprobs),
        None if probs == [math.exp(value) for value in logprobs] else _floats(probs),
        tuple(each.rank for each in candidates),
        None if sampled == probs else _floats(sampled),
        tuple(each.cut_by for each in candidates),
    )


def _floats(values: list[float]) -> tuple[str, bytes]:
    """In 32 bits where that loses nothing."""
    short = (
        array("f", values) if all(abs(value) < 1e38 or math.isinf(value) for value in values) else array("f")
    )
    return ("f", short.tobytes()) if short.tolist() == values else ("d", array("d", values).tobytes())


@lru_cache(maxsize=64)
def _unpacked(data: bytes) -> tuple[Candidate, ...]:
    ids, texts, raws, special, logprobs, probs, ranks, sampled, cuts = marshal.loads(zlib.decompress(data))
    raws = [text.encode("utf-8", "surrogatepass") for text in texts] if raws is None else raws
    logprobs = array(*logprobs).tolist()
    probs = [math.exp(value) for value in logprobs] if probs is None else array(*probs).tolist()
    sampled = probs if sampled is None else array(*sampled).tolist()
    return tuple(map(Candidate, ids, texts, raws, special, logprobs, probs, ranks, sampled, cuts))


def pack(record: object) -> None:
    """Pack the candidates of a record's distributions where they are, those of a trace that wait unread excepted.

    Nobody can tell but by the memory: a thread that reads them meanwhile has the one form or the other.
    """
    for name in ("choice", "next"):
        distribution: Any = getattr(record, name, None)
        if type(distribution) is Distribution and type(distribution.candidates) is tuple:
            object.__setattr__(distribution, "candidates", PackedCandidates(distribution.candidates))
