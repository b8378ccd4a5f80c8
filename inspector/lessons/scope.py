"""What expressions look at: the session on show, what the engine answered, and the values that beats keep."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from engine import wire
from engine.protocol import Answer, Command, Ended, Failure, QuestionAsked, Record
from engine.settings import Settings
from inspector.lessons.errors import LessonError
from inspector.lessons.values import Value
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
        self._answers: dict[Command, list[Record]] = {}
        self._asking: Command | None = None
        """The question whose answer is waited for."""
        self._out: dict[int, tuple[Command, list[Record]]] = {}
        """Questions that have not ended, also those that nobody waits for any more, with what answered them, by id."""
        controller.client.parts.append(self._tell)
        controller.client.listeners.append(self._receive)

    def close(self) -> None:
        """Listen no more, and wait for nothing."""
        self.forget()
        self.controller.client.parts.remove(self._tell)
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
        return self._asking is not None

    def answer(self, command: Command, kind: type[Told]) -> Told:
        """The engine's answer to a question.

        Raises:
            Unanswered: It was not asked yet.
            LookupError: It has none, with the reason.
        """
        if command not in self._answers:
            raise Unanswered(command)
        records = self._answers[command]
        if (found := next((each for each in records if isinstance(each, kind)), None)) is not None:
            return found
        failure = next((each for each in records if isinstance(each, Failure)), None)
        raise LookupError(failure.message.rstrip(".") if failure else f"{command.kind} was not answered")

    def ask(self, command: Command) -> None:
        """Ask the engine."""
        self._asking, self._answers[command] = command, []
        self._out[command.id] = command, self._answers[command]
        self.controller.client.send(command)

    def forget(self) -> None:
        """A beat begins: what was asked of the session before may have other answers now."""
        if self._asking is not None:
            self.controller.client.cancel(self._asking)
        self.since, self._answers, self._asking = [], {}, None

    def _tell(self, record: Record) -> None:
        """Tell the question right before the first record that answers it: a trace keeps the two together, whatever
        others were told meanwhile."""
        if isinstance(record, Answer) and not isinstance(record, Ended) and record.id in self._out:
            command, records = self._out[record.id]
            if not records:
                self.controller.client.receive(QuestionAsked(wire.encode(replace(command, id=0)).decode()))

    def _receive(self, record: Record) -> None:
        if not isinstance(record, Answer) or record.id not in self._out:
            if not isinstance(record, QuestionAsked):
                self.since.append(record)
        elif isinstance(record, Ended):
            command, _ = self._out.pop(record.id)
            self._asking = None if command is self._asking else self._asking
        else:
            self._out[record.id][1].append(record)


def missing(line: int, what: str) -> LessonError:
    """A value that this run doesn't have."""
    return LessonError(line, f"There is no {what} here.", rule="quantity")
