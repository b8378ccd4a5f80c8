"""What a dialog asks the engine as a person types: at most one question of a kind is out, and the latest wins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from engine.commands import Command
from engine.records import Ended, Failure, Record

Answer = TypeVar("Answer", bound=Record)


class Lookup(Generic[Answer]):
    """Questions of one kind, one after another.

    Args:
        question: The command that asks.
        answer: The record that answers it.
        send: Sends a command to the engine.
    """

    def __init__(
        self, question: type[Command], answer: type[Answer], send: Callable[[Command], None]
    ) -> None:
        self._name, self._kind, self._send = question.__name__, answer, send
        self._out: Command | None = None
        self._wanted: Command | None = None
        """The question whose answer is waited for, sent or not."""
        self.tell: Callable[[Answer | Failure], None] = lambda _: None
        """Called with the answer to the latest question, or with why there is none."""

    def ask(self, question: Command) -> None:
        """Ask something; what was asked before and isn't answered yet no longer matters."""
        self._wanted = question
        if self._out is None:
            self._ask()
        elif self._out != question:
            self._out.cancel.set()  # the latest is asked when it has ended

    def drop(self) -> None:
        """Nobody waits for an answer any more."""
        self._wanted, self.tell = None, lambda _: None
        if self._out is not None:
            self._out.cancel.set()

    def receive(self, record: Record) -> None:
        """Take in one record of the engine."""
        if isinstance(record, Ended) and record.command == self._name:
            self._out = None
            self._ask()
        elif self._out is None or self._out != self._wanted:
            return
        elif isinstance(record, self._kind) or (isinstance(record, Failure) and record.command == self._name):
            self._wanted = None
            self.tell(record)

    def _ask(self) -> None:
        if self._wanted is not None:
            self._out = self._wanted
            self._send(self._out)
