"""The commands that measure: each on caches of its own, beside the session."""

from __future__ import annotations

from collections.abc import Iterator

from engine import commands
from engine.measuring import kv_costs
from engine.measuring.fenced import profile
from engine.measuring.race import race
from engine.measuring.roofline import roofline
from engine.model.forward import Stopped
from engine.model.load import Loaded
from engine.records import Record
from engine.session.session import Session


def measure(
    command: commands.Measure, loaded: Loaded, session: Session, stopped: Stopped
) -> Iterator[Record]:
    """The records that answer a command.

    Raises:
        EngineError: What is asked for can't be measured here.
        Cancelled: `stopped` said so.
    """
    match command:
        case commands.Race():
            return race(loaded, session, command.first, command.last, stopped)
        case commands.Profile():
            return profile(loaded.model, session, command.repeats, stopped)
        case commands.MeasureRoofline():
            return roofline(loaded, session, stopped)
        case commands.CompareKV():
            return kv_costs.compare(loaded, session, command.bits, command.group_size, stopped)
    raise TypeError(f"unknown command {command!r}")
