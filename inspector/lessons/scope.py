"""What expressions look at: the session on show, what the engine answered, and the values that beats keep."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TypeVar

from engine import wire
from engine.protocol import Command, QuestionAsked, Record
from engine.settings import Settings
from inspector.lessons.errors import LessonError
from inspector.lessons.values import Value
from inspector.session.client import Request
from inspector.session.controller import Controller
from inspector.state.timeline import Timeline

Told = TypeVar("Told", bound=Record)


class Unanswered(Exception):
    """An expression needs an answer of the engine.

    Args:
        command: The question.
    """

    def __init__(self, command: Command) -> None:
        super().__init__(command)
        self.command = command


class Scope:
    """The records of one run of a lesson.

    Args:
        controller: The session on show.
    """

    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self.kept: dict[str, Value] = {}
        """By the names that the lesson gives them."""
        self.since: list[Record] = []
        """What happened since the beat began."""
        self._asked: dict[Command, Request[Command]] = {}
        """The questions of the beat."""
        self._ids: set[int] = set()
        """Of all questions, also of the beats before: what answers them is nothing that happened."""
        self._told: set[int] = set()
        """Of those that were answered."""
        controller.client.listeners.append(self._receive)

    def close(self) -> None:
        """Listen no more, and wait for nothing."""
        self.forget()
        self.controller.client.listeners.remove(self._receive)

    @property
    def timeline(self) -> Timeline:
        """What is on show."""
        return self.controller.timeline

    @property
    def settings(self) -> Settings:
        """The sampler's, in force."""
        return self.controller.queries.in_force

    @property
    def waiting(self) -> bool:
        """Whether an answer is on its way."""
        return not all(request.done for request in self._asked.values())

    def answer(self, command: Command, kind: type[Told]) -> Told:
        """The engine's answer to a question.

        Raises:
            Unanswered: It was not asked yet.
            LookupError: It has none, with the reason.
        """
        if command not in self._asked:
            raise Unanswered(command)
        return self._asked[command].answer(kind)

    def ask(self, command: Command) -> None:
        """Ask the engine."""
        self._ids.add(command.id)
        self._asked[command] = self.controller.client.request(command, each=partial(self._tell, command))

    def forget(self) -> None:
        """A beat begins: what was asked of the session before may have other answers now."""
        for request in self._asked.values():
            request.cancel()
        self.since, self._asked = [], {}

    def _tell(self, command: Command, record: Record) -> None:
        """Tell the question right before the first record that answers it: a trace keeps the two together, whatever
        others were told meanwhile."""
        if command.id not in self._told:
            self._told.add(command.id)
            self.controller.client.receive(QuestionAsked(wire.encode(replace(command, id=0)).decode()))

    def _receive(self, record: Record) -> None:
        if record.request not in self._ids and not isinstance(record, QuestionAsked):
            self.since.append(record)


def missing(line: int, what: str) -> LessonError:
    """A value that this run doesn't have."""
    return LessonError(line, f"There is no {what} here.", rule="quantity")
