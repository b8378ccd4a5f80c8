"""Questions of a lesson that was recorded: the same question gets the same answer."""

from __future__ import annotations

from dataclasses import replace

from engine import wire
from engine.errors import WireError
from engine.protocol import Command, Ended, Failure, QuestionAsked, Record
from engine.settings import LoadSettings, Settings
from engine.trace import Kept, Unknown


class RecordedQuestions:
    """Those of one recording, as far as it was read."""

    def __init__(self) -> None:
        self._answers: dict[str, list[Record]] = {}
        """By the question, as `QuestionAsked` has it in this version."""
        self._reading: list[Record] | None = None
        """The answer that is being read."""
        self._kind = ""
        """Of the question that it answers."""

    def note(self, value: Kept | Unknown) -> None:
        """Take in an entry: an answer is all up to the end of its command."""
        if isinstance(value, QuestionAsked):
            words, self._kind = _as_asked_now(value.command)
            self._reading = self._answers[words] = []
        elif isinstance(value, Ended | Failure) and value.command != self._kind:
            pass  # of what was asked meanwhile, or before
        elif isinstance(value, Ended):
            self._reading = None
        elif self._reading is not None and not isinstance(value, Unknown | Settings | LoadSettings):
            self._reading.append(value)

    def answer(self, command: Command) -> list[Record]:
        """What was answered to a question; empty where it was not asked."""
        return self._answers.get(wire.encode(replace(command, id=0)).decode(), []) if self._answers else []


def _as_asked_now(question: str) -> tuple[str, str]:
    """A recorded question as this version words it, and its kind: an earlier one lacks fields that were added since."""
    try:
        command = wire.decode(question.encode(), recorded=True)
        return wire.encode(command).decode(), getattr(command, "kind", "")
    except WireError:  # of a later version, or nobody's: it is not asked here
        return question, ""
