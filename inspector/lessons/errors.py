"""What is wrong with a lesson, where, and what would mend it."""

from __future__ import annotations

from engine.errors import EngineError


class LessonError(EngineError):
    """A lesson that can't be used as it is.

    Args:
        line: In its file, from 1.
        message: What is wrong, as a sentence.
        hint: What would mend it, as a sentence.
        rule: Name of the rule that it breaks.
    """

    def __init__(self, line: int, message: str, hint: str = "", rule: str = "format") -> None:
        super().__init__(message, hint)
        self.line, self.rule = line, rule

    def at(self, path: str) -> str:
        """As a compiler would say it: file, line, what is wrong, what would mend it."""
        return f"{path}:{self.line}: {self.message} {self.hint}".rstrip()
