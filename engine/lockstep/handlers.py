"""The commands of two models in lockstep."""

from __future__ import annotations

from collections.abc import Mapping

from engine import protocol
from engine.desk import Call, Desk, Handler
from engine.errors import StepError
from engine.gc_policy import collect_all
from engine.lockstep.paths import PathReader
from engine.lockstep.second import open_second
from engine.lockstep.texts import diff_text
from engine.lockstep.ways import part_ways
from engine.protocol import Command, LockstepClosed


class LockstepCommands:
    """Handlers of the commands on a second model, which they hold.

    Args:
        desk: The first model, the session, and where records are emitted.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._paths: PathReader | None = None

    def handlers(self) -> Mapping[type[Command], Handler]:
        """See `Capability`."""
        return {
            protocol.OpenLockstep: self._open,
            protocol.CloseLockstep: self._close,
            protocol.DiffText: self._diff,
            protocol.ReadLockstep: self._read,
            protocol.FollowSecond: self._follow,
            protocol.PartWays: self._part,
        }

    def forget(self, model: bool) -> None:
        """Drop the second model with the first, which it is compared with; with the tree what was read of that."""
        if model:
            self._paths = None
        elif self._paths is not None:
            self._paths.forget()

    @property
    def _both(self) -> PathReader:
        """What reads in both models.

        Raises:
            StepError: There is no second one.
        """
        if self._paths is None:
            raise StepError("There is no second model.", "Open one to compare with.")
        return self._paths

    def _open(self, command: protocol.OpenLockstep, call: Call) -> None:
        self.forget(model=True)
        collect_all()  # its memory is free before the next one takes more
        first = self._desk.model
        self._paths = PathReader(first, open_second(first, command, self._desk.emit, call.cancel))

    def _close(self, command: protocol.CloseLockstep, call: Call) -> None:
        title = self._paths.second.title if self._paths is not None else ""
        self.forget(model=True)
        collect_all()
        self._desk.emit(LockstepClosed(title))

    def _diff(self, command: protocol.DiffText, call: Call) -> None:
        for record in diff_text(self._desk.model, self._both.second, command, call.stopped):
            self._desk.emit(record)

    def _read(self, command: protocol.ReadLockstep, call: Call) -> None:
        session = self._desk.session
        for record in self._both.read(session, command.node, command.candidates, call.stopped):
            self._desk.emit(record)

    def _follow(self, command: protocol.FollowSecond, call: Call) -> None:
        both, session = self._both, self._desk.session
        if both.second.aligned == "bytes":
            raise StepError(
                "The second model has other tokens, so its pick is none of the first one's.",
                "Step with the first model, or let each go its own way.",
            )
        self._read(protocol.ReadLockstep(command.node), call)
        self._desk.take_tokens(command.node, [both.pick(session, command.node)], "chosen", call)

    def _part(self, command: protocol.PartWays, call: Call) -> None:
        both, session = self._both, self._desk.session
        self._read(protocol.ReadLockstep(command.node), call)
        for record in part_ways(session, both, command.node, command.tokens, call.stopped):
            self._desk.emit(record)
