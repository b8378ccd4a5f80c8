"""Tokenizers on this disk, taken apart without an engine: in a replay, and for a command that names files alone."""

from __future__ import annotations

from collections.abc import Callable

from engine.errors import EngineError
from engine.protocol import Ended, Failure, Received, Record, Sent, TakeApart, TakenApart
from engine.settings import LoadSettings


def needs_no_engine(model: str) -> bool:
    """Tell whether a model's tokenizer is a file that says all of it: that of the bundled one, or one that is named."""
    return model == "pocket" or model.endswith(".json")


def taken_apart(command: TakeApart, load: LoadSettings, stopped: Callable[[], bool]) -> TakenApart:
    """A text taken apart by a tokenizer on this disk.

    Args:
        command: The question.
        load: The model of the session.
        stopped: Whether nobody waits for the answer any more.

    Raises:
        EngineError: It isn't there, or it or the text can't be taken apart.
    """
    from engine.tokenizers.tracer import on_disk

    name = "" if command.settings is None else command.settings.model
    return on_disk(name or load.model, name).trace(
        command.text, command.begin, command.end, command.node, stopped
    )


class TokenizerBackend:
    """Answers `TakeApart` alone, at once.

    Args:
        emit: Receives the answers.
    """

    def __init__(self, emit: Callable[[Received], None]) -> None:
        self._emit = emit

    def start(self) -> None:
        """Nothing is to be started."""

    def send(self, sent: Sent) -> None:
        """Answer."""
        command = sent.command
        assert isinstance(command, TakeApart)
        try:
            answer: Record = taken_apart(command, LoadSettings(), lambda: False)
        except EngineError as error:
            answer = Failure(command.kind, error.message, error.hint)
        for record in (answer, Ended(command.kind)):
            self._emit(Received(record, sent.id))

    def close(self, timeout: float = 2.0) -> bool:
        """Nothing is under way."""
        return True
