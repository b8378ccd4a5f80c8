"""The commands that measure, on separate caches, so that the session doesn't change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from engine import protocol
from engine.desk import Call, Desk, Handler
from engine.measuring import kv_costs
from engine.measuring.fenced import profile
from engine.measuring.race import race
from engine.measuring.roofline import roofline
from engine.protocol import Command, Record
from engine.session.session import Session


class MeasuringCommands:
    """Handlers of measurements.

    Args:
        desk: The model, the session, and where records are emitted.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def handlers(self) -> Mapping[type[Command], Handler]:
        """See `Capability`."""
        return {
            protocol.Race: self._race,
            protocol.Profile: self._profile,
            protocol.MeasureRoofline: self._roofline,
            protocol.CompareKV: self._compare_kv,
            protocol.Sweep: self._sweep,
        }

    def forget(self, model: bool) -> None:
        """Do nothing: no state is kept between two measurements."""

    @property
    def _session(self) -> Session:
        """The session, at a token of the model's own.

        Raises:
            StepError: No model is loaded, or the token was computed under interventions.
        """
        session = self._desk.session
        session.held.refuse(session.node, "measurements are")
        return session

    def _emit(self, measured: Iterable[Record]) -> None:
        for record in measured:
            self._desk.emit(record)

    def _race(self, command: protocol.Race, call: Call) -> None:
        desk = self._desk
        self._emit(race(desk.model, self._session, command.first, command.last, call.stopped))

    def _profile(self, command: protocol.Profile, call: Call) -> None:
        self._emit(profile(self._desk.model.model, self._session, command.repeats, call.stopped))

    def _roofline(self, command: protocol.MeasureRoofline, call: Call) -> None:
        self._emit(roofline(self._desk.model, self._session, call.stopped))

    def _compare_kv(self, command: protocol.CompareKV, call: Call) -> None:
        desk = self._desk
        self._emit(
            kv_costs.compare(desk.model, self._session, command.bits, command.group_size, call.stopped)
        )

    def _sweep(self, command: protocol.Sweep, call: Call) -> None:
        from engine.measuring.sweeps import sweep  # wanted rarely, and start-up shouldn't pay for it

        self._emit(sweep(self._desk.model, command.settings, call.stopped))
