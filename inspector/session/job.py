"""Work that a screen starts, watches and stops: one or several commands that measure, and what came of them."""

from __future__ import annotations

from engine.protocol import Command, Ended, Failure, Measuring, Record
from inspector.session.client import EngineClient


class Job:
    """Commands of some classes.

    Args:
        client: Takes the commands.
        kinds: The classes.
    """

    def __init__(self, client: EngineClient, *kinds: type[Command]) -> None:
        self._client, self._classes = client, kinds
        self._kinds = frozenset(each.kind for each in kinds)
        self.progress: Measuring | None = None
        """How far the command is that is under way."""
        self.failures: dict[str, Failure] = {}
        """By the kind of the command that failed, until it is started again."""
        self.cancelled = False
        """Whether the command that ended last was cancelled."""

    @property
    def commands(self) -> list[Command]:
        """What is asked for and neither ended nor cancelled."""
        return self._client.under_way(*self._classes)

    @property
    def running(self) -> bool:
        """Whether anything is asked for."""
        return bool(self.commands)

    @property
    def failure(self) -> Failure | None:
        """What failed first."""
        return next(iter(self.failures.values()), None)

    def start(self, *asked: Command) -> None:
        """Have commands carried out, one after another."""
        self.cancelled, self.progress = False, None
        for command in asked:
            self.failures.pop(command.kind, None)
            self._client.do(command)

    def stop(self) -> bool:
        """Cancel what is asked for; returns whether anything was."""
        return self._client.cancel(*self.commands)

    def receive(self, record: Record) -> None:
        """Take in one record."""
        match record:
            case Measuring(command=kind) if kind in self._kinds:
                self.progress = record
            case Failure(command=kind) if kind in self._kinds:
                self.failures[kind] = record
            case Ended(command=kind) if kind in self._kinds:
                self.progress, self.cancelled = None, record.cancelled
            case _:
                pass
