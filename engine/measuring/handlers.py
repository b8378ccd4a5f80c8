"""The commands that measure, on separate caches, so that the session doesn't change."""

from __future__ import annotations

from collections.abc import Mapping

from engine import protocol
from engine.context import Capability, Handler
from engine.files import typed
from engine.measuring import kv_costs
from engine.measuring.profile import capture, profile
from engine.measuring.race import race
from engine.measuring.roofline import roofline
from engine.protocol import Command
from engine.session.session import Session
from engine.task import Task


class MeasuringCommands(Capability):
    """Handlers of measurements."""

    def handlers(self) -> Mapping[type[Command], Handler]:
        """See `Capability`."""
        return {
            protocol.Race: self._race,
            protocol.Profile: self._profile,
            protocol.CaptureMetal: self._capture,
            protocol.MeasureRoofline: self._roofline,
            protocol.CompareKV: self._compare_kv,
            protocol.ReadMachine: self._machine,
        }

    @property
    def _session(self) -> Session:
        """The session, at a token of the model's own.

        Raises:
            StepError: No model is loaded, or the token was computed under interventions.
        """
        session = self._context.session
        session.held.refuse(session.node, "measurements are")
        return session

    def _race(self, command: protocol.Race, task: Task) -> None:
        context = self._context
        self._context.emit_all(
            race(context.model, self._session, command.first, command.last, task.cancel.is_set)
        )

    def _profile(self, command: protocol.Profile, task: Task) -> None:
        self._context.emit_all(
            profile(self._context.model.model, self._session, command.repeats, task.cancel.is_set)
        )

    def _capture(self, command: protocol.CaptureMetal, task: Task) -> None:
        self._context.emit(capture(self._session, typed(command.path)))

    def _roofline(self, command: protocol.MeasureRoofline, task: Task) -> None:
        self._context.emit_all(roofline(self._context.model, self._session, task.cancel.is_set))

    def _compare_kv(self, command: protocol.CompareKV, task: Task) -> None:
        context = self._context
        self._context.emit_all(
            kv_costs.compare(
                context.model, self._session, command.bits, command.group_size, task.cancel.is_set
            )
        )

    def _machine(self, command: protocol.ReadMachine, task: Task) -> None:
        from engine.measuring.machine import read_machine  # wanted rarely, and start-up shouldn't pay for it

        self._context.emit(read_machine(self._context.model.facts))
