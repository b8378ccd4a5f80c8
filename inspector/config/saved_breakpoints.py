"""The breakpoints that were set last, in one JSON file of the user's configuration directory.

The file is meant to be read and edited by hand. What this version doesn't know stays in it, and a file that can't be
read is moved aside, never overwritten.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from engine.breakpoints import BY_NAME, Breakpoints
from engine.errors import SettingsError
from engine.files import TEXT_LIMIT, read_regular
from engine.frozen import frozen
from inspector.config import presets
from inspector.config.files import alone, set_aside, write

NAMES = frozenset(field.name for field in fields(Breakpoints))


@frozen
class StoredBreakpoints:
    """The file as it was read."""

    content: Mapping[str, Any]
    """All of it, what is not understood too."""
    points: Breakpoints
    """Of the valid conditions."""
    problems: tuple[str, ...] = ()
    """What is invalid, one sentence each."""
    damaged: bool = False
    """Nothing of the file could be read."""


class SavedBreakpoints:
    """Keeps breakpoints from one start to the next.

    Args:
        path: The file; None for `breakpoints.json` in the user's configuration directory. It need not exist.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or presets.folder() / "breakpoints.json"

    def read(self) -> StoredBreakpoints:
        """Read the file; report what is wrong with it, and use what is valid."""
        try:
            content = json.loads(read_regular(self.path, TEXT_LIMIT).decode())
        except FileNotFoundError:
            return StoredBreakpoints({}, Breakpoints())
        except (OSError, ValueError, RecursionError) as error:
            return self._damaged(str(getattr(error, "strerror", None) or error))
        if not isinstance(content, dict) or not isinstance(content.get("breakpoints", {}), dict):
            return self._damaged('it is not {"breakpoints": {CONDITION: VALUE}}')
        return self._parsed(content)

    def _damaged(self, why: str) -> StoredBreakpoints:
        problem = (
            f"The breakpoints in {self.path} can't be read: {why}. Mend the file; saving sets it aside first."
        )
        return StoredBreakpoints({}, Breakpoints(), (problem,), damaged=True)

    def _parsed(self, content: Mapping[str, Any]) -> StoredBreakpoints:
        values: dict[str, Any] = {}
        problems = []
        for name, value in content.get("breakpoints", {}).items():
            try:
                values |= {name: _checked(name, value)} if name in NAMES else {}
            except SettingsError as error:
                problems.append(f"A breakpoint in {self.path} is not used: {error}")
        return StoredBreakpoints(content, Breakpoints(**values), tuple(problems))

    def save(self, points: Breakpoints) -> str:
        """Keep breakpoints, replacing those before.

        Returns:
            What became of a damaged file, empty for most.

        Raises:
            EngineError: The file can't be written.
        """
        values = {name: getattr(points, name) for name in sorted(NAMES)}
        own = {name: value for name, value in values.items() if value is not None and value is not False}
        if not own and not self.path.exists():
            return ""
        with alone(self.path):
            return self._save(own)

    def _save(self, own: Mapping[str, Any]) -> str:
        stored = self.read()
        before = stored.content.get("breakpoints", {})
        unknown = {name: value for name, value in before.items() if name not in NAMES}
        text = json.dumps({**stored.content, "breakpoints": {**own, **unknown}}, ensure_ascii=False, indent=2)
        moved = set_aside(self.path) if stored.damaged else ""
        write(self.path, text + "\n")
        return moved


def _checked(name: str, value: object) -> object:
    """A value of the file.

    Raises:
        SettingsError: It is no such value.
    """
    if name == "all_of":
        if not isinstance(value, bool):
            raise SettingsError(name, f"all_of must be true or false, not {json.dumps(value)}.")
    else:
        BY_NAME[name].check(value)
    return value
