"""The base class of the states of capabilities, made from their records, live or recorded."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import fields

from engine.protocol import Command, Record

MOST = 1e15
"""No engine measured so much of anything."""


class ReplayStop(Enum):
    """Treatment of a record that changes the screen of a tool and not the main one, by a step through a recording."""

    EACH = "each"
    """The step ends with it."""
    FIRST = "first"
    """The step ends with the first of those that come in a row."""
    FIRST_AND_LAST = "first and last"
    """The step ends with the first, and with the one whose `last` is set: each has the whole again."""
    BEGINS = "begins"
    """It ends no step, and begins a new row."""


class CapabilityState:
    """The state that the records of one capability make. `STATES` lists all of them; a `Timeline` has one of each."""

    ENDS: ClassVar[tuple[str, ...]] = ()
    """Kinds of commands whose failure and end change it."""
    STOPS: ClassVar[Mapping[type[Record], tuple[ReplayStop, str]]] = {}
    """Treatment of its records by a replay, and its words where it stops at one: see `with_keys`; empty for none."""
    FAILS: ClassVar[tuple[type[Command], ...]] = ()
    """Commands whose failure its screen shows: a recording fails them. It answers others in the status line."""

    def apply(self, record: Record) -> None:
        """Take in one record; one of something else changes nothing."""

    @classmethod
    def changing(cls) -> tuple[type[Record], ...]:
        """The records that change its tool's screen: in a replay a step can end with each."""
        return tuple(record for record, (stop, _) in cls.STOPS.items() if stop is not ReplayStop.BEGINS)

    @classmethod
    def sound(cls, record: Record) -> bool:
        """Tell whether a record of a file can be drawn, as one that an engine made can."""
        return True


def measurable(value: object) -> bool:
    """Tell whether all numbers in a value are finite, not below zero, and such as an engine could have measured."""
    if isinstance(value, int | float):
        return 0 <= value <= MOST
    if isinstance(value, tuple):
        return all(map(measurable, value))
    return not isinstance(value, Struct) or all(
        measurable(getattr(value, each.name)) for each in fields(value)
    )


def within(value: float | None, low: float, high: float, *more: float) -> bool:
    """Tell whether a number lies between two, or is one of some others; None always does."""
    return value is None or low <= value <= high or value in more
