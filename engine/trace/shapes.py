"""The records of a trace and their fields, read off the dataclasses, once per class.

Nothing here names a record's fields: a new record or field is in the next trace, by its definition.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Literal, get_args, get_origin

from engine.frozen import frozen
from engine.protocol import RECORDS, Record
from engine.settings import LoadSettings, Settings

Kept = Record | Settings | LoadSettings
"""The values of a trace's lines: records, and settings from the moment at which they are in force."""
KINDS: Mapping[str, type] = {**RECORDS, "Settings": Settings, "LoadSettings": LoadSettings}
"""The classes of lines, by name."""
INT_LIMIT = 2**64
"""Whole numbers are from -1 to below this: a seed may be one less."""
TEXT_LIMIT = 4 * 2**20
"""Characters of one text at most."""
_ENDLESS = (
    "logprob", "surprisal", "score", "logits", "logit_before", "logit_after", "values", "difference", "change", "error",
    "kl_bits", "kl_nats",
)  # fmt: skip
"""Parts of names of numbers that may be infinite, or NaN, where a model gives a token probability 0."""


class Misfit(Exception):
    """A value doesn't fit its field; the message lacks the line, which only the file's reader knows."""


@frozen
class FieldColumn:
    """One field of a class."""

    name: str
    hint: Any
    default: Any
    """MISSING where it has none: then the field is required."""

    @property
    def endless(self) -> bool:
        """Whether its numbers may be infinite."""
        return any(part in self.name for part in _ENDLESS)


@cache
def columns(cls: type, transient: bool = False) -> tuple[FieldColumn, ...]:
    """The fields of a dataclass in their order, with their types resolved.

    Args:
        cls: The dataclass.
        transient: Also those that no file holds (`metadata={"traced": False}`): outside the running process they mean
            nothing.
    """
    hints = typing.get_type_hints(cls)
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
    return get_args(hint) if get_origin(hint) is tuple else None


def words(hint: Any) -> tuple[str, ...] | None:
    """The words that a `Literal` allows, None for another type."""
    return get_args(hint) if get_origin(hint) is Literal else None


def _within(hint: Any) -> Iterator[type]:
    """The dataclasses within a type."""
    if is_dataclass(hint):
        yield typing.cast(type, hint)
    for part in get_args(hint):
        yield from _within(part)


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
