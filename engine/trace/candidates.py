"""Candidates as columns: values that follow from another column are left out, but for exceptions.

Twenty candidates are most of a step. As columns they take about 600 bytes, as objects 3,000.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from engine.protocol import Candidate
from engine.trace.numbers import named, restored, shortened, steady_exp
from engine.trace.shapes import Misfit
from engine.trace.values import (
    brief,
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
    named = columns.get("cut_by", {})
    if type(named) is not dict:
        raise Misfit(f"cut_by must be places by name, not {brief(named)}")
    for name, places in named.items():
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
