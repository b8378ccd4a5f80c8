"""Rows of values into instances of a class, quickly: a trace of 50,000 steps has half a million of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import MISSING
from operator import itemgetter
from types import NoneType
from typing import Any

from engine.trace_lazy import WITHOUT_CANDIDATES, Held
from engine.trace_shapes import INT_LIMIT, Column, Misfit, columns, optional

Read = Callable[[Any], Any]
ABSENT = object()
"""Stands in a row for a field that the file doesn't have."""


def absent(column: Column) -> Read:
    """What reads a field that the file doesn't have: its default, if it has one."""

    def read(_: Any) -> Any:
        if column.default is MISSING:
            raise Misfit("is not in the header's fields, and there is no value to take for it")
        return column.default

    return read


class _Plan:
    """What is to be done to rows whose values have given types.

    Args:
        found: The class's fields.
        reads: What reads each of them.
        types: Of the values; none to read every field by itself.
    """

    def __init__(self, found: Sequence[Column], reads: Sequence[Read], types: Sequence[type]) -> None:
        hints = [optional(column.hint) for column in found]
        as_they_are = {
            place: kind
            for place, (kind, (hint, may_lack)) in enumerate(zip(types, hints, strict=False))
            if (kind is hint and kind in (int, float, bool)) or (kind is NoneType and may_lack)
        }
        self.reads = [(place, read) for place, read in enumerate(reads) if place not in as_they_are]
        self.ints = _values([place for place, kind in as_they_are.items() if kind is int])
        """Whole numbers of a row: all of them together are checked in a fraction of the time."""
        self.floats = _values([place for place, kind in as_they_are.items() if kind is float])


def _values(places: Sequence[int]) -> Callable[[list[Any]], Sequence[Any]]:
    if len(places) > 1:
        return itemgetter(*places)
    return (lambda row: (row[places[0]],)) if places else (lambda _: (0,))


class Builder:
    """Makes instances of a class from rows in the order of its own fields.

    Args:
        cls: The class.
        reads: What reads each field's value.
    """

    def __init__(self, cls: type, reads: Sequence[Read]) -> None:
        self._cls, self._reads, self._columns = cls, reads, columns(cls)
        self._lazy = WITHOUT_CANDIDATES.get(cls)
        self._each = _Plan(self._columns, reads, ())
        self._plans: dict[tuple[type, ...], _Plan] = {}
        """By the types of a row's values: nearly all rows of a class have the same."""

    def build(self, row: list[Any]) -> Any:
        """An instance; the row is used up.

        Raises:
            Misfit: A value doesn't fit its field.
        """
        types = tuple(map(type, row))
        plan = self._plans.get(types) or self._planned(types)
        ints = plan.ints(row)
        if min(ints) < -1 or max(ints) >= INT_LIMIT or not math.isfinite(sum(plan.floats(row))):
            plan = self._each
        place = 0
        try:
            for place, read in plan.reads:
                row[place] = read(row[place])
        except Misfit as error:
            raise Misfit(f"{self._cls.__name__}.{self._columns[place].name} {error}") from None
        if self._lazy is not None and Held in map(type, row):
            return self._lazy(*row)
        return self._cls(*row)

    def _planned(self, types: tuple[type, ...]) -> _Plan:
        plan = _Plan(self._columns, self._reads, types)
        if len(self._plans) < 256:  # a file that is meant to fill memory has no more of them either
            self._plans[types] = plan
        return plan
