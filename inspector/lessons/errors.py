"""The faults of a lesson: where they are, and how to mend them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from engine.errors import EngineError

Read = TypeVar("Read")
Source = TypeVar("Source")


class LessonError(EngineError):
    """A lesson that can't be used as it is.

    Args:
        line: Line in its file, from 1.
        message: What is wrong, as a sentence.
        hint: How to mend it, as a sentence.
        rule: Name of the rule that it breaks.
    """

    def __init__(self, line: int, message: str, hint: str = "", rule: str = "format") -> None:
        super().__init__(message, hint)
        self.line, self.rule = line, rule

    def at(self, path: str) -> str:
        """The fault as compilers write one: file, line, message, hint."""
        return f"{path}:{self.line}: {self.message} {self.hint}".rstrip()


class Faults:
    """The faults of a file, in the order in which it is read."""

    def __init__(self) -> None:
        self.found: list[LessonError] = []

    def of(self, read: Callable[[], Read], otherwise: Read) -> Read:
        """Read a part; if it can't be read, add the fault and return `otherwise`."""
        try:
            return read()
        except LessonError as error:
            self.found.append(error)
            return otherwise

    def add(self, line: int, message: str, hint: str, rule: str) -> None:
        self.found.append(LessonError(line, message, hint, rule))

    def each(self, read: Callable[[Source], Read], sources: Iterable[Source]) -> tuple[Read, ...]:
        """Read several parts; those that can't be read are left out, and their faults are added."""
        made: list[Read] = []
        for source in sources:
            try:
                made.append(read(source))
            except LessonError as error:
                self.found.append(error)
        return tuple(made)
