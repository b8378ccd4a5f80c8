"""Candidates as columns, in a trace and in memory: what follows from another column is left out, but for exceptions.

Twenty candidates are most of a step. As columns of a trace they take about 600 bytes, as objects 3,000.
"""

from __future__ import annotations

import marshal
import math
import struct
import sys
import zlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, overload

from engine.protocol import Candidate, Distribution
from engine.trace.values import (
    Misfit,
    brief,
    named,
    read_bytes,
    read_endless,
    read_float,
    read_int,
    read_list,
    read_text,
    write_bytes,
    write_text,
)

Columns = dict[str, Any]
NAMES = ("id", "raw", "logprob", "logprob32", "sampler_prob", "text", "prob", "rank", "special", "cut_by")
"""Every column; a column that isn't there follows from the others."""


# ---- what follows from the others -------------------------------------------------------------


def _text(raw: bytes) -> str:
    """The text of bytes that are whole characters, else an empty one."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return ""


def _ranks(logprobs: Sequence[float]) -> list[int]:
    """Ranks from 1, ties sharing the lowest."""
    ranks: list[int] = []
    for place, logprob in enumerate(logprobs):
        ranks.append(ranks[-1] if place and logprob == logprobs[place - 1] else place + 1)
    return ranks


def _exceptions(values: Sequence[Any], usual: Sequence[Any]) -> list[list[Any]]:
    return [
        [place, write_text(value) if isinstance(value, str) else value]
        for place, (value, expected) in enumerate(zip(values, usual, strict=True))
        if value != expected
    ]


# ---- numbers: written short where that is lossless, and read back the same on every machine ----

_INV_LN2 = 1.4426950408889634
_LN2_HIGH = 0.6931471803691238
"""The first 33 bits of ln 2, so that a multiple of it is exact."""
_LN2_LOW = 1.9082149292705877e-10
_TAYLOR = tuple(1 / math.factorial(n) for n in range(13, 1, -1))


def steady_exp(value: float) -> float:
    """e**value from sums and products alone, which IEEE 754 fixes to the last bit; `math.exp` differs by system.

    It equals `math.exp` but for one unit in the last place in about one of thirty values. Costs about 1 microsecond.

    Args:
        value: Any; outside -700 to 700, or for NaN, the result is 0.
    """
    if not -700 < value < 700:
        return 0.0
    power = round(value * _INV_LN2)
    high, low = value - power * _LN2_HIGH, power * _LN2_LOW
    rest = high - low
    lost = (high - rest) - low
    terms = 0.0
    for factor in _TAYLOR:
        terms = terms * rest + factor
    total = 1.0 + rest
    return math.ldexp(total + ((1.0 - total) + rest + (terms * rest * rest + lost)), power)


def shortened(values: Sequence[float]) -> list[float] | None:
    """Numbers of few digits that `restored` turns into these, None unless all of these are float32 numbers."""
    try:
        if restored(values) != list(values):
            return None
    except OverflowError:
        return None
    short = [float(f"{value:.7g}") for value in values]
    for digits in (8, 9):  # nine are always enough
        short = [
            kept if back == value else float(f"{value:.{digits}g}")
            for kept, back, value in zip(short, restored(short), values, strict=True)
        ]
    return short


def restored(values: Sequence[float]) -> list[float]:
    """Each number rounded to float32.

    Raises:
        OverflowError: One is beyond float32.
    """
    layout = f"<{len(values)}f"
    return list(struct.unpack(layout, struct.pack(layout, *values)))


# ---- writing ----------------------------------------------------------------------------------


def write(candidates: Sequence[Candidate]) -> Columns:
    """The columns of some candidates."""
    raws = [each.raw for each in candidates]
    logprobs = [each.logprob for each in candidates]
    probs = [each.prob for each in candidates]
    columns: Columns = {"id": [each.id for each in candidates], "raw": [write_bytes(raw) for raw in raws]}
    short = shortened(logprobs)
    columns["logprob" if short is None else "logprob32"] = [named(v) for v in short or logprobs]
    sampled = [each.sampler_prob for each in candidates]
    if sampled != probs:
        columns["sampler_prob"] = sampled
    columns |= {
        "text": _exceptions([each.text for each in candidates], [_text(raw) for raw in raws]),
        "prob": _exceptions(probs, [steady_exp(logprob) for logprob in logprobs]),
        "rank": _exceptions([each.rank for each in candidates], _ranks(logprobs)),
        "special": [place for place, each in enumerate(candidates) if each.special],
        "cut_by": _cuts(candidates),
    }
    return {name: column for name, column in columns.items() if column}


def _cuts(candidates: Sequence[Candidate]) -> dict[str, list[int]]:
    places: dict[str, list[int]] = {}
    for place, candidate in enumerate(candidates):
        if candidate.cut_by is not None:
            places.setdefault(candidate.cut_by, []).append(place)
    return places


# ---- reading ----------------------------------------------------------------------------------


def read(value: Any) -> tuple[tuple[Candidate, ...], Columns]:
    """The candidates of some columns, and the columns that this version doesn't know.

    Raises:
        Misfit: A column is missing, or doesn't fit.
    """
    if type(value) is not dict:
        raise Misfit(f"candidates must be columns by name, not {brief(value)}")
    try:
        return _read(value), _unknown(value)
    except (Misfit, OverflowError) as error:
        raise Misfit(f"candidates: {error}") from error


def _unknown(columns: Columns) -> Columns:
    more = columns.get("more", {})
    if type(more) is not dict:
        raise Misfit(f"more must be columns by name, not {brief(more)}")
    unknown = {name: column for name, column in columns.items() if name not in (*NAMES, "more")}
    return {**more, **unknown}


def _read(columns: Columns) -> tuple[Candidate, ...]:
    ids = _column(columns, "id", read_int)
    count = len(ids)
    raws = _column(columns, "raw", read_bytes, count)
    logprobs = _logprobs(columns, count)
    probs = _mended(columns, "prob", [steady_exp(logprob) for logprob in logprobs], read_float)
    sampled = _column(columns, "sampler_prob", read_float, count) if "sampler_prob" in columns else probs
    texts = _mended(columns, "text", [_text(raw) for raw in raws], read_text)
    ranks = _mended(columns, "rank", _ranks(logprobs), read_int)
    special, cuts = [False] * count, [None] * count
    _put(special, columns.get("special", []), True)
    by_name = columns.get("cut_by", {})
    if type(by_name) is not dict:
        raise Misfit(f"cut_by must be places by name, not {brief(by_name)}")
    for name, places in by_name.items():
        _put(cuts, places, name)
    return tuple(map(Candidate, ids, texts, raws, special, logprobs, probs, ranks, sampled, cuts))


def _column(columns: Columns, name: str, read: Callable[[Any], Any], length: int | None = None) -> list[Any]:
    if name not in columns:
        raise Misfit(f"have no {name}")
    try:
        return [read(item) for item in read_list(columns[name], length)]
    except Misfit as error:
        raise Misfit(f"{name} {error}") from None


def _logprobs(columns: Columns, count: int) -> list[float]:
    if "logprob32" in columns:
        return restored(_column(columns, "logprob32", read_endless, count))
    return _column(columns, "logprob", read_endless, count)


def _mended(columns: Columns, name: str, usual: list[Any], read: Callable[[Any], Any]) -> list[Any]:
    """The usual values, replaced by the exceptions at their places."""
    for pair in read_list(columns.get(name, [])):
        place, value = read_list(pair, 2)
        _put(usual, [place], read(value))
    return usual


def _put(values: list[Any], places: Any, value: Any) -> None:
    for place in read_list(places):
        if type(place) is not int or not 0 <= place < len(values):
            raise Misfit(f"there is no candidate in place {brief(place)}")
        values[place] = value


# ---- in memory --------------------------------------------------------------------------------


class PackedCandidates(Sequence[Candidate]):
    """Candidates of a long session as bytes, until somebody looks; equal to the tuple of them, and read as it is.

    The twenty candidates of a step are 4.5 KB as objects, most of what a session of 20,000 steps holds. Packed they are
    0.5 KB. A trace's columns would be as small, and take eight times as long to read.

    Args:
        candidates: What it is made of.
    """

    __slots__ = ("_data",)

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self._data = zlib.compress(marshal.dumps(_packed_columns(candidates)), 1)

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

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + sys.getsizeof(self._data)

    def __repr__(self) -> str:
        return repr(_unpacked(self._data))


def _packed_columns(candidates: Sequence[Candidate]) -> tuple[Any, ...]:
    """What is not as it usually is has a column; None where it follows from others."""
    texts, raws = [each.text for each in candidates], [each.raw for each in candidates]
    logprobs, probs = [each.logprob for each in candidates], [each.prob for each in candidates]
    sampled, ranks = [each.sampler_prob for each in candidates], [each.rank for each in candidates]
    special, cuts = tuple(each.special for each in candidates), tuple(each.cut_by for each in candidates)
    return (
        tuple(each.id for each in candidates),
        tuple(texts),
        None if raws == [text.encode("utf-8", "surrogatepass") for text in texts] else tuple(raws),
        special if any(special) else None,
        _floats(logprobs),
        None if probs == [math.exp(value) for value in logprobs] else _floats(probs),
        None if ranks == list(range(1, len(candidates) + 1)) else tuple(ranks),
        None if sampled == probs else _floats(sampled),
        cuts if any(cuts) else None,
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
    count = len(ids)
    special, cuts = special or (False,) * count, cuts or (None,) * count
    ranks = range(1, count + 1) if ranks is None else ranks
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
