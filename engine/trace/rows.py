"""From rows of values to instances of a class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING
from typing import Any

from engine.trace.forms import Read
from engine.trace.lazy import WITHOUT_CANDIDATES, Held
from engine.trace.shapes import FieldColumn, Misfit, columns

ABSENT = object()
"""The value, in a row, of a field that the file doesn't have."""


def absent(column: FieldColumn) -> Read:
    """The reader of a field that the file doesn't have: its default, if it has one."""

    def read(_: Any) -> Any:
        if column.default is MISSING:
            raise Misfit("is not in the header's fields, and there is no value to take for it")
        return column.default

    return read


def builder(cls: type, reads: Sequence[Read]) -> Read:
    """The function from a row, in the order of a class's own fields, to an instance.

    Args:
        cls: The class.
        reads: The readers of its fields' values; may raise `Misfit`.
    """
    names = [column.name for column in columns(cls)]
    without = WITHOUT_CANDIDATES.get(cls)

    def build(row: Sequence[Any]) -> Any:
        values: list[Any] = []
        add = values.append
        try:
            for read, value in zip(reads, row, strict=True):
                add(read(value))
        except Misfit as error:
            raise Misfit(f"{cls.__name__}.{names[len(values)]} {error}") from None
        if without is not None and Held in map(type, values):
            return without(*values)
        return cls(*values)

    return build
