"""The errors that the engine raises on purpose, with what is wrong and what to do next."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

COMPUTE_AGAIN = "Compute them again"
"""Begin of a hint where `commands.Recall` solves the problem."""
FAULT = "This is a fault of the program; please report it with the log."
"""The hint of a failure that is a bug."""


class EngineError(Exception):
    """A problem that a person can solve.

    Args:
        message: What is wrong, one line.
        hint: What to do next, one line; empty when the message already says it.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".rstrip()


class PathError(EngineError):
    """A path that a person typed, or a file of theirs, can't be used."""


class LoadError(EngineError):
    """The model, tokenizer or adapter can't be loaded."""


class RankError(EngineError):
    """One of the processes that compute a model together is lost, and with it the model.

    Args:
        message: Which one, why, and its last words.
        hint: What to do next, one line.
        rank: Its number.
    """

    def __init__(self, message: str, hint: str, rank: int) -> None:
        super().__init__(message, hint)
        self.rank = rank


class PromptError(EngineError):
    """The prompt can't be read, encoded or held."""


class StepError(EngineError):
    """The requested step, move or insertion isn't possible at the session's current node."""


class SettingsError(EngineError):
    """A setting is out of its range.

    Args:
        field: Name of the setting, as in `engine.settings.Settings`.
        message: What is wrong, one line.
        hint: What to do next, one line.
    """

    def __init__(self, field: str, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.field = field


class RecordingError(EngineError):
    """A recording can't be read or written.

    Args:
        message: What is wrong, one line.
        hint: What to do next, one line.
        entry: Of the file, from 1; 0 if it isn't about one.
    """

    def __init__(self, message: str, hint: str = "", entry: int = 0) -> None:
        super().__init__(message, hint)
        self.entry = entry


class Cancelled(EngineError):
    """The person stopped the work; what was done so far is kept."""

    def __init__(self) -> None:
        super().__init__("Cancelled.")


@contextmanager
def cutting() -> Iterator[None]:
    """Report whatever a tokenizer raises at a text, a panic of its library in Rust too, which is no `Exception`.

    Raises:
        PromptError: It raised something.
    """
    try:
        yield
    except (EngineError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise PromptError(
            f"The tokenizer can't cut this text ({first_line(error, 160)}).",
            "Give another text, or another tokenizer.",
        ) from error


def first_line(error: object, most: int = 200, nothing: str = "") -> str:
    """The first line of an error's text, without a full stop.

    Args:
        error: What was raised.
        most: Characters at most.
        nothing: What is said where it has no text; empty for its class.
    """
    lines = str(error).strip().splitlines()
    return lines[0][:most].rstrip(" :.") if lines else nothing or type(error).__name__
