"""The commands of two models in lockstep."""

from __future__ import annotations

from collections.abc import Mapping

from engine import commands
from engine.commands import Command
from engine.desk import Call, Desk, Handler
from engine.errors import StepError
from engine.gc_policy import collect_all
from engine.lockstep.second import Second, open_second
from engine.lockstep.texts import diff_text
from engine.records import LockstepClosed


class LockstepCommands:
    """Handlers of the commands on a second model, which they hold.

    Args:
        desk: The first model, the session, and where records are emitted.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._second: Second | None = None

    def handlers(self) -> Mapping[type[Command], Handler]:
        """See `Capability`."""
        return {
            commands.OpenLockstep: self._open,
            commands.CloseLockstep: self._close,
            commands.DiffText: self._diff,
        }

    def forget(self, model: bool) -> None:
        """Drop the second model with the first: it is compared with that one."""
        if model:
            self._second = None

    @property
    def _model(self) -> Second:
        """The second model.

        Raises:
            StepError: There is none.
        """
        if self._second is None:
            raise StepError("There is no second model.", "Open one to compare with.")
        return self._second

    def _open(self, command: commands.OpenLockstep, call: Call) -> None:
        self.forget(model=True)
        collect_all()  # its memory is free before the next one takes more
        self._second = open_second(self._desk.model, command, self._desk.emit, call.cancel)

    def _close(self, command: commands.CloseLockstep, call: Call) -> None:
        self.forget(model=True)
        collect_all()
        self._desk.emit(LockstepClosed())

    def _diff(self, command: commands.DiffText, call: Call) -> None:
        for record in diff_text(self._desk.model, self._model, command, call.stopped):
            self._desk.emit(record)
