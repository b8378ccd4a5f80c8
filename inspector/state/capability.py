"""The base class of the states of capabilities, built from their live or recorded records."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import fields

from engine.protocol import Command, Record

MOST = 1e15
"""Larger than any number that an engine measures."""


class ReplayStop(Enum):
    """The way a step through a recording treats a record that changes a tool's screen but not the main one."""

    EACH = "each"
    """The step ends with it."""
    FIRST = "first"
    """The step ends with the first of several in a row."""
    FIRST_AND_LAST = "first and last"
    """The step ends with the first, and with the one whose `last` is set: each contains the whole result so far."""
    BEGINS = "begins"
    """No step ends with it; it begins a new row."""


class CapabilityState:
    """The state that the records of one capability build. `STATES` lists all classes; a `Timeline` has one of each."""

    ENDS: ClassVar[tuple[str, ...]] = ()
    """Kinds of commands whose failure or end changes the state."""
    STOPS: ClassVar[Mapping[type[Record], tuple[ReplayStop, str]]] = {}
    """The way a replay treats each record, and the sentence shown when it stops there (see `with_keys`), if any."""
    FAILS: ClassVar[tuple[type[Command], ...]] = ()
    """Commands whose failure the tool's screen shows: a recording fails them, and answers others in the status line."""

    def apply(self, record: Record) -> None:
        """Apply one record; a record of another capability changes nothing."""

    @classmethod
    def changing(cls) -> tuple[type[Record], ...]:
        """The records that change the tool's screen; a step through a replay can end with each."""
        return tuple(record for record, (stop, _) in cls.STOPS.items() if stop is not ReplayStop.BEGINS)

    @classmethod
    def sound(cls, record: Record) -> bool:
        """True if a record from a file can be drawn, as one from an engine always can."""
        return True


def measurable(value: object) -> bool:
    """True if all numbers in a value are between 0 and `MOST`, so that an engine could have measured them."""
    if isinstance(value, int | float):
        return 0 <= value <= MOST
    if isinstance(value, tuple):
        return all(map(measurable, value))
    return not isinstance(value, Struct) or all(
        measurable(getattr(value, each.name)) for each in fields(value)
    )


def within(value: float | None, low: float, high: float, *more: float) -> bool:
    """True if a number is between `low` and `high`, is one of `more`, or is None."""
    return value is None or low <= value <= high or value in more
