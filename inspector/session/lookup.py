"""What a dialog asks the engine as a person types: at most one question of a kind is out, and the latest wins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from engine.protocol import Answer, Command, Ended, Failure, Record
from inspector.session.client import EngineClient

Found = TypeVar("Found", bound=Record)


class Lookup(Generic[Found]):
    """Questions of one kind, one after another.

    Args:
        answer: The record that answers it.
        client: Sends the questions and gives the records.
    """

    def __init__(self, answer: type[Found], client: EngineClient) -> None:
        self._answer, self._client = answer, client
        self._out: Command | None = None
        self._wanted: Command | None = None
        """The question whose answer is waited for, sent or not."""
        self.tell: Callable[[Found | Failure], None] = lambda _: None
        """Called with the answer to the latest question, or with why there is none."""
        client.listeners.append(self._receive)

    def ask(self, question: Command) -> None:
        """Ask something; what was asked before and isn't answered yet no longer matters."""
        self._wanted = question
        if self._out is None:
            self._ask()
        elif self._out != question:
            self._client.cancel(self._out)  # the latest is asked when it has ended

    def drop(self) -> None:
        """Nobody waits for an answer any more."""
        self.tell = lambda _: None
        self.forget()

    def forget(self) -> None:
        """There is nothing to be asked for now."""
        self._wanted = None
        if self._out is not None:
            self._client.cancel(self._out)

    def _receive(self, record: Record) -> None:
        if self._out is None or not isinstance(record, Answer) or record.id != self._out.id:
            return
        if isinstance(record, Ended):
            self._out = None
            self._ask()
        elif self._out == self._wanted and isinstance(record, self._answer | Failure):
            self._wanted = None
            self.tell(record)

    def _ask(self) -> None:
        if self._wanted is not None:
            self._out = self._wanted
            self._client.ask(self._out)
