"""The classes of a trace and of the wire: their fields, and the forms of these as JSON, read off the dataclasses.

Nothing here names a record's fields. A field is described once, where its class declares it: by its name, which has the
unit, by its type, which says whether its numbers may be infinite (`Endless`) or below 0 (`Signed`), and by
`metadata={"traced": False}` where it means nothing outside the running process. So a new record or field is in the next
trace by its definition.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin

from engine.frozen import frozen
from engine.protocol import RECORDS, Candidate, Distribution, KVReading, PromptToken, Record
from engine.settings import LoadSettings, Settings
from engine.trace.values import READS, WRITES, Misfit, Read, Write, brief, read_list

Kept = Record | Settings | LoadSettings
"""The values of a trace's lines: records, and settings from the moment at which they are in force."""
KINDS: Mapping[str, type] = {**RECORDS, "Settings": Settings, "LoadSettings": LoadSettings}
"""The classes of lines, by name."""
CANDIDATES = tuple[Candidate, ...]
"""The type that stands as columns: see `engine.trace.candidates`."""
REFERRED = (Distribution, PromptToken)
"""Classes whose instances a later line refers to by node instead of repeating them."""
PARTS: Mapping[type, tuple[str, ...]] = {
    Distribution: ("node", "entropy_bits", "picked", "reroll"),
    KVReading: (),
}
"""Classes whose instances stand at the end of their line and are decoded when they are looked at, with the fields that
are known before: those that every step needs at once."""


# ---- fields -----------------------------------------------------------------------------------


@frozen
class FieldColumn:
    """One field of a class."""

    name: str
    hint: Any
    default: Any
    """MISSING where it has none: then the field is required."""


@cache
def columns(cls: type, transient: bool = False) -> tuple[FieldColumn, ...]:
    """The fields of a dataclass in their order, with their types resolved.

    Args:
        cls: The dataclass.
        transient: Also those that no file holds (`metadata={"traced": False}`).
    """
    hints = typing.get_type_hints(cls, include_extras=True)
    kept = (field for field in fields(cls) if transient or field.metadata.get("traced", True))
    return tuple(FieldColumn(field.name, hints[field.name], _default(field)) for field in kept)


def _default(field: Any) -> Any:
    return field.default_factory() if field.default_factory is not MISSING else field.default


def optional(hint: Any) -> tuple[Any, bool]:
    """A type without `None`, and whether `None` was part of it."""
    if get_origin(hint) not in (types.UnionType, typing.Union):
        return hint, False
    inner = [part for part in get_args(hint) if part is not types.NoneType]
    if len(inner) != 1:
        raise TypeError(f"a trace has no form for {hint}")
    return inner[0], True


def items(hint: Any) -> tuple[Any, ...] | None:
    """The types of a tuple's items, `(type, ...)` for any number of one type; None where it isn't a tuple."""
    hint = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return get_args(hint) if get_origin(hint) is tuple else None


def words(hint: Any) -> tuple[str, ...] | None:
    """The words that a `Literal` allows, None for another type."""
    return get_args(hint) if get_origin(hint) is Literal else None


@cache
def classes() -> Mapping[str, type]:
    """The classes of lines and the dataclasses within them, by name; the first call takes 10 ms."""
    classes_by_name: dict[str, type] = {}
    waiting = list(KINDS.values())
    while waiting:
        cls = waiting.pop(0)
        if cls.__name__ not in classes_by_name:
            classes_by_name[cls.__name__] = cls
            waiting += [inner for column in columns(cls) for inner in _within(column.hint)]
    return classes_by_name


def _within(hint: Any) -> Iterator[type]:
    """The dataclasses within a type."""
    if is_dataclass(hint):
        yield typing.cast(type, hint)
    for part in get_args(hint):
        yield from _within(part)


@cache
def field_names() -> Mapping[str, Sequence[str]]:
    """The names of the fields of all classes, as this version's headers have them."""
    return {name: [column.name for column in columns(cls)] for name, cls in classes().items()}


def blank(cls: type) -> Any:
    """An empty instance of a class: zeros, empty texts, None where it is allowed."""
    return cls(*(_nothing(column.hint) for column in columns(cls)))


def _nothing(hint: Any) -> Any:
    hint, may_lack = optional(hint)
    if may_lack:
        return None
    if (allowed := words(hint)) is not None:
        return allowed[0]
    if items(hint) is not None:
        return ()
    return blank(hint) if hint in classes().values() else hint()


# ---- forms ------------------------------------------------------------------------------------


def reader(hint: Any, own: Callable[[Any], Read | None]) -> Read:
    """The reader of a type; it raises `Misfit` for a value of another type.

    Args:
        hint: The type.
        own: The format's reader of a type with a special form, such as dataclasses; None for the rest.
    """
    hint, may_lack = optional(hint)
    read = own(hint) or _reader(hint, own)
    return (lambda value: None if value is None else read(value)) if may_lack else read


def _reader(hint: Any, own: Callable[[Any], Read | None]) -> Read:
    if (parts := items(hint)) is not None:
        reads = [reader(part, own) for part in parts if part is not ...]
        return _each(reads[0]) if parts[-1] is ... else _in_turn(reads)
    return READS[hint] if (allowed := words(hint)) is None else _one_of(allowed)


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


def writer(hint: Any, own: Callable[[Any], Write | None]) -> Write | None:
    """The function from a value of a type to JSON, None where it is JSON already.

    Args:
        hint: The type.
        own: The format's writer of a type with a special form; None for the rest.
    """
    hint, may_lack = optional(hint)
    write = own(hint) or _writer(hint, own)
    return (lambda value: None if value is None else write(value)) if write and may_lack else write


def _writer(hint: Any, own: Callable[[Any], Write | None]) -> Write | None:
    if (parts := items(hint)) is None:
        return WRITES.get(hint)
    writes = [writer(part, own) for part in parts if part is not ...]
    if not any(writes):
        return None
    if parts[-1] is ... and (write := writes[0]):
        return lambda value: [write(item) for item in value]
    return lambda value: [write(item) if write else item for write, item in zip(writes, value, strict=True)]
