"""The errors that the engine raises on purpose, each with a message and a hint."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

COMPUTE_AGAIN = "Compute them again"
"""Beginning of a hint if `Recall` solves the problem."""
FAULT = "This is a fault of the program; please report it with the log."
"""Hint of a failure that is a bug."""


class EngineError(Exception):
    """A problem that the user can solve.

    Args:
        message: The problem, in one line.
        hint: The next step for the user, in one line; empty if the message already says it.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".rstrip()


class PathError(EngineError):
    """A path or file given by the user can't be used."""


class LoadError(EngineError):
    """The model, tokenizer or adapter can't be loaded."""


class RankError(EngineError):
    """One of the processes that compute a model together is lost, so the model must be loaded again.

    Args:
        message: The process, the cause, and its last output.
        hint: The next step for the user, in one line.
        rank: Number of the process.
    """

    def __init__(self, message: str, hint: str, rank: int) -> None:
        super().__init__(message, hint)
        self.rank = rank


class PromptError(EngineError):
    """The prompt can't be read or encoded, or doesn't fit."""


class StepError(EngineError):
    """The requested step, move or insertion isn't possible at the session's current node."""


class SettingsError(EngineError):
    """A setting is out of its range.

    Args:
        field: Name of the setting, as in `engine.settings.Settings`.
        message: The problem, in one line.
        hint: The next step for the user, in one line.
    """

    def __init__(self, field: str, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.field = field


class RecordingError(EngineError):
    """A recording can't be read or written.

    Args:
        message: The problem, in one line.
        hint: The next step for the user, in one line.
        entry: Number of the entry in the file, from 1; 0 if the error isn't about a single entry.
    """

    def __init__(self, message: str, hint: str = "", entry: int = 0) -> None:
        super().__init__(message, hint)
        self.entry = entry


class Cancelled(EngineError):
    """The user stopped the work; what was done so far is kept."""

    def __init__(self) -> None:
        super().__init__("Cancelled.")


@contextmanager
def cutting() -> Iterator[None]:
    """Convert any error of a tokenizer, including a panic of its Rust library, which is not an `Exception`.

    Raises:
        PromptError: The tokenizer raised an error.
    """
    try:
        yield
    except (EngineError, KeyboardInterrupt):
        raise
    except BaseException as error:
        message = f"The tokenizer can't cut this text ({first_line(error, 160)})."
        raise PromptError(message, "Give another text, or another tokenizer.") from error


def not_unicode_at(text: str) -> int | None:
    """Index of the first character that UTF-8 can't encode, a lone surrogate; None if there is none."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return error.start
    return None


def first_line(error: object, most: int = 200, nothing: str = "") -> str:
    """The first line of an error's message, without a final full stop.

    Args:
        error: The exception.
        most: Maximum number of characters.
        nothing: Text to return if the message is empty; by default, the name of the error's class.
    """
    lines = str(error).strip().splitlines()
    return lines[0][:most].rstrip(" :.") if lines else nothing or type(error).__name__
