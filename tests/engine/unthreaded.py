"""An engine without its thread: commands are carried out where they are given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from engine.model.load import Loaded
from engine.protocol import Command, Configure, Load, Measuring, Prefill, Received, Record
from engine.session.session import Session
from engine.settings import LoadSettings, Settings
from engine.task import Task
from engine.worker import Worker

Kind = TypeVar("Kind")


class Unthreaded:
    """A worker, and all that it emitted.

    Args:
        model: What is loaded first, or is loaded already; None for no model.
        settings: The session's; None for the usual ones.
        prompt: Raw text that is read then; empty for none.
    """

    def __init__(
        self, model: LoadSettings | Loaded | None = None, settings: Settings | None = None, prompt: str = ""
    ) -> None:
        self.records: list[Record] = []
        self.command_ids: list[int] = []
        """Of their commands."""
        self.sent = 0
        """Commands; the last one has this number as its id."""
        self.asides: list[Task] = []
        """Answered between the steps of other commands."""
        self.cancel_when: Callable[[Record], bool] = lambda record: False
        """Whether a record that was emitted cancels the command that runs."""
        self.running: Task | None = None
        self.waits = False
        """Whether another command waits."""
        self.worker = Worker(
            self._take, lambda: self.asides.pop(0) if self.asides else None, lambda: self.waits
        )
        self.context = self.worker._context
        if isinstance(model, Loaded):
            self.context.loaded, self.context.opened = model, Session(model, settings or Settings())
        elif model is not None:
            self.do(Load(model))
        if settings is not None:
            self.do(Configure(settings))
        if prompt:
            self.do(Prefill(prompt, chat=False))

    def _take(self, received: Received) -> None:
        record = received.record
        self.records.append(record)
        self.command_ids.append(received.id)
        if self.running is not None and self.cancel_when(record):
            self.running.cancel.set()

    @property
    def session(self) -> Session:
        return self.context.session

    def do(self, *commands: Command | Task) -> list[Record]:
        """Carry out commands; returns what the last one emitted."""
        at = 0
        for command in commands:
            self.sent += 1
            at = len(self.records)
            self.running = command if isinstance(command, Task) else Task(command, self.sent)
            self.worker.carry_out(self.running)
            assert all(each.done <= each.total for each in self.of(Measuring, self.records[at:]))
        return self.records[at:]

    def one(self, command: Command, kind: type[Kind]) -> Kind:
        """Carry out a command that emits one record of a kind; returns that."""
        found = self.do(command)
        (record,) = [each for each in found if isinstance(each, kind)] or found
        assert isinstance(record, kind), record
        return record

    def of(self, kind: type[Kind], among: Sequence[Record] | None = None) -> list[Kind]:
        """The records of a kind."""
        return [each for each in (self.records if among is None else among) if isinstance(each, kind)]


def kinds(records: Sequence[Record]) -> list[str]:
    """The names of records."""
    return [type(record).__name__ for record in records]
