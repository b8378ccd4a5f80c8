"""Records as those of a model that was just loaded: what it did first was slow, and is marked."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from engine.protocol import PrefillChunk, Prefilled, Record, Step

SLOW = 900.0
"""Milliseconds of the first chunk and of the first step."""


def cold_start(records: Iterable[Record]) -> list[Record]:
    """The records of a session whose first chunk, prompt and step are cold starts."""
    made: list[Record] = []
    met: set[type] = set()
    for record in records:
        first = type(record) not in met
        met.add(type(record))
        made.append(_cold(record) if first else record)
    return made


def _cold(record: Record) -> Record:
    match record:
        case PrefillChunk():
            return replace(record, ms=SLOW, cold=True)
        case Prefilled():
            return replace(record, prompt_tps=0.0, cold=True)
        case Step():
            return replace(record, ms=replace(record.ms, total=SLOW, cold=True))
    return record
