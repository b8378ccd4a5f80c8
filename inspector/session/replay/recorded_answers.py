"""Answers from recorded rows of logits, in threads: what a long text would have been takes longer than a frame."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread

from engine.errors import Cancelled, EngineError, StepError
from engine.logits.recorded import RecordedLogits
from engine.protocol import Command, Ended, Failure, Record, addressed
from engine.settings import LoadSettings, Settings
from engine.task import Task

_Answer = Callable[[Callable[[], bool]], Record]
_EDITED = "Take another copy of the recording."


class RecordedAnswers:
    """Takes in what a recording tells, and answers from the rows in it, one question after another.

    Args:
        emit: Receives the answers, and an `Ended` after each, as from an engine.
    """

    def __init__(self, emit: Callable[[Record], None]) -> None:
        self._emit = emit
        self._logits = RecordedLogits()
        self._tasks: dict[int, Task] = {}
        """Those that have not ended, by the id of their command."""
        self._last: Thread | None = None
        """Answers the latest question, once those before it are answered."""

    def begin(self) -> None:
        """The recording is shown anew: forget what it told."""
        self._logits = RecordedLogits()

    def take(self, value: Record | Settings | LoadSettings) -> None:
        """Take in what an entry tells."""
        self._logits.take(value)

    def ask(self, command: Command) -> bool:
        """Have a command answered where there are rows for it; returns whether there are."""
        if not self._logits.answers(command):
            return False
        task = self._tasks[command.id] = Task(command)
        arguments = (task, self._logits.question(command), self._last)
        self._last = Thread(target=self._work, args=arguments, name="recorded answer", daemon=True)
        self._last.start()
        return True

    def cancel(self, id: int) -> None:
        """Give up a command that was asked, if it hasn't ended."""
        if (task := self._tasks.get(id)) is not None:
            task.cancel.set()

    def close(self) -> None:
        """Give up everything."""
        for task in list(self._tasks.values()):
            task.cancel.set()

    # ---- in the threads ---------------------------------------------------------------------

    def _work(self, task: Task, answer: _Answer, before: Thread | None) -> None:
        if before is not None:
            before.join()
        command, cancelled = task.command, False
        try:
            self._emit(addressed(answer(task.cancel.is_set), command.id))
        except Cancelled:
            cancelled = True
        except EngineError as error:
            self._emit(_failure(command, error))
        except Exception as error:  # only a file made to mislead: ids or nodes that its rows haven't
            told = f"What was recorded doesn't hold together here: {type(error).__name__}."
            self._emit(_failure(command, StepError(told, _EDITED)))
        del self._tasks[command.id]
        self._emit(Ended(command.kind, cancelled, id=command.id))


def _failure(command: Command, error: EngineError) -> Failure:
    return Failure(command.kind, error.message, error.hint, id=command.id)
