"""Writers and readers of JSON values by type; a format adds its own form of dataclasses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from engine.protocol import Packed
from engine.trace.numbers import named
from engine.trace.shapes import Misfit, items, optional, words
from engine.trace.values import (
    brief,
    read_bool,
    read_bytes,
    read_endless,
    read_float,
    read_int,
    read_list,
    read_packed,
    read_text,
    write_bytes,
    write_packed,
    write_text,
)

Read = Callable[[Any], Any]
Write = Callable[[Any], Any]
SCALARS: dict[Any, Read] = {
    int: read_int,
    float: read_float,
    str: read_text,
    bytes: read_bytes,
    Packed: read_packed,
    bool: read_bool,
}


def reader(hint: Any, endless: bool, own: Callable[[Any], Read | None]) -> Read:
    """The reader of a type; it raises `Misfit` for a value of another type.

    Args:
        hint: The type.
        endless: Whether its numbers may be infinite, or NaN.
        own: The format's reader of a type with a special form, such as dataclasses; None for the rest.
    """
    hint, may_lack = optional(hint)
    read = own(hint) or _reader(hint, endless, own)
    return _or_none(read) if may_lack else read


def _reader(hint: Any, endless: bool, own: Callable[[Any], Read | None]) -> Read:
    if hint is float and endless:
        return read_endless
    if (parts := items(hint)) is not None:
        reads = [reader(part, endless, own) for part in parts if part is not ...]
        return _each(reads[0]) if parts[-1] is ... else _in_turn(reads)
    if (allowed := words(hint)) is not None:
        return _one_of(allowed)
    return SCALARS[hint]


def _or_none(read: Read) -> Read:
    return lambda value: None if value is None else read(value)


def _each(read: Read) -> Read:
    return lambda value: tuple([read(item) for item in read_list(value)])


def _in_turn(reads: Sequence[Read]) -> Read:
    return lambda value: tuple(
        [read(item) for read, item in zip(reads, read_list(value, len(reads)), strict=True)]
    )


def _one_of(allowed: Sequence[str]) -> Read:
    def read(value: Any) -> Any:
        if type(value) is str and value in allowed:
            return value
        raise Misfit(f"must be one of {', '.join(allowed)}, not {brief(value)}")

    return read


def writer(hint: Any, endless: bool, own: Callable[[Any], Write | None]) -> Write | None:
    """The function from a value of a type to JSON, None where it is JSON already.

    Args:
        hint: The type.
        endless: As for `reader`.
        own: The format's writer of a type with a special form; None for the rest.
    """
    hint, may_lack = optional(hint)
    write = own(hint) or _writer(hint, endless, own)
    if write is None or not may_lack:
        return write
    return lambda value: None if value is None else write(value)


def _writer(hint: Any, endless: bool, own: Callable[[Any], Write | None]) -> Write | None:
    if (parts := items(hint)) is not None:
        return _items([writer(part, endless, own) for part in parts if part is not ...], parts[-1] is ...)
    plain: dict[Any, Write | None] = {
        str: write_text,
        bytes: write_bytes,
        Packed: write_packed,
        float: named if endless else None,
    }
    return plain.get(hint)


def _items(writes: Sequence[Write | None], alike: bool) -> Write | None:
    if not any(writes):
        return None
    if alike:
        write = writes[0]
        assert write is not None
        return lambda value: [write(item) for item in value]
    return lambda value: [write(item) if write else item for write, item in zip(writes, value, strict=True)]
