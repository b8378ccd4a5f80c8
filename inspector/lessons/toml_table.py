"""A table of TOML in a lesson's file, with the lines where its names stand."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from typing import Any

from inspector.lessons.errors import Faults, LessonError

LONGEST_TOML, MOST_DOTS = 16 * 1024, 30
"""Characters of a table, and dots of a name in it: Python's reader takes a minute for a name of 30,000 dots."""
MOST_MINUTES = 600.0


class TomlTable:
    """A table of TOML, with the lines where its names stand.

    Args:
        source: Its text.
        offset: Lines of the file before it.
        names: Those that it may have.
        faults: Takes what is wrong with its values.

    Raises:
        LessonError: It is no TOML.
    """

    def __init__(self, source: str, offset: int, names: Sequence[str], faults: Faults) -> None:
        self._lines, self._offset, self._faults = source.split("\n"), offset, faults
        if len(source) > LONGEST_TOML or any(_dots(line) > MOST_DOTS for line in self._lines):
            raise LessonError(offset + 1, "This table is too large.", "Make it shorter.", "toml")
        try:
            self._values = tomllib.loads(source)
        except (ValueError, RecursionError) as error:  # ValueError: also a number of 5,000 digits
            message = f"This is no TOML: {str(error).partition(' (at ')[0]}."
            raise LessonError(self._error_line(error), message, _TOML, "toml") from error
        for unknown in sorted(self._values.keys() - set(names), key=self.line):
            hint = f"There are {', '.join(names)}."
            faults.add(self.line(unknown), f"There is no {unknown}.", hint, "entry")

    def _error_line(self, error: Exception) -> int:
        """The line that an error of tomllib names in its words."""
        said = re.search(r"at line (\d+)", str(error))
        return self._offset + (int(said[1]) if said else len(self._lines))

    def line(self, name: str, containing: str = "") -> int:
        """Where a name stands in the file, or a text that its value has."""
        own = (place for place, line in enumerate(self._lines, 1) if _names(line, name))
        begin = next(own, 1)
        if containing:
            rest = enumerate(self._lines[begin - 1 :], begin)
            begin = next((place for place, line in rest if containing in line), begin)
        return self._offset + begin

    def get(self, name: str, kinds: type | tuple[type, ...], default: Any) -> Any:
        """A value of some type."""
        value = self._values.get(name, default)
        if isinstance(value, kinds) and (not isinstance(value, bool) or kinds is bool):
            return value
        words = {str: "a text in quotes", dict: "a table", bool: "true or false"}
        kind = words.get(kinds, "a number") if isinstance(kinds, type) else "a number"
        self._faults.add(self.line(name), f"{name} must be {kind}.", "", "entry")
        return default

    def minutes(self, default: float) -> float:
        """How long something takes."""
        value = self.get("minutes", (int, float), default)
        if not 0 <= value <= MOST_MINUTES:  # also nan
            line = self.line("minutes")
            self._faults.add(line, f"minutes must be from 0 to {MOST_MINUTES:.0f}.", "", "entry")
            return default
        return float(value)

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts, or one."""
        value = self._values.get(name, [])
        found = [value] if isinstance(value, str) else value
        if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
            self._faults.add(self.line(name), f"{name} must be a list of texts in quotes.", "", "entry")
            return ()
        return tuple(found)


_TOML = 'A value is written name = "text", name = 3, or name = ["text", "text"].'


def _names(line: str, name: str) -> bool:
    """Whether a line gives a name its value, or begins its table."""
    return line.partition("=")[0].strip() == name or line.strip() == f"[{name}]"


def _dots(line: str) -> int:
    """The most dots in a row with one word at most between two of them, as in a dotted name."""
    most = now = 0
    for word in line.split("."):
        now = now + 1 if len(word.split()) < 2 else 0
        most = max(most, now)
    return most
