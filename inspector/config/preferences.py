"""How a person left the screen: theme, colour metric, view of tokens, pace and the panels' room, in one JSON file.

The file is meant to be read and edited by hand. What this version doesn't know stays in it, and a file that can't be
read is moved aside, never overwritten.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, field
from pathlib import Path
from typing import Any

from engine.files import TEXT_LIMIT, read_regular
from engine.frozen import frozen
from inspector.config import presets
from inspector.config.files import alone, set_aside, write
from inspector.scales import METRICS

VIEWS = ("off", "borders", "ids", "bytes")
"""How the text shows where tokens begin and end, in the order in which a key goes through them."""
SIZES = ("left", "below", "last", "candidates", "lower")
"""Names of the sizes: `Preferences.sizes`."""


@frozen
class Preferences:
    """What the screen begins with."""

    theme: str = ""
    """Name of the theme; empty for the toolkit's own choice."""
    metric: str = "surprisal"
    """What text and steps are coloured by: one of `scales.METRICS`."""
    pace: float | None = None
    """Steps a second of a run, None for as fast as it goes."""
    alone: bool = False
    """Whether the text and the candidates are shown alone."""
    hidden: tuple[str, ...] = ()
    """Ids of the panels that are hidden."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Of the dividers that were moved: thousandths of the width for the left column (`left`), and lines for the panels
    below (`below`) and the lowest of three (`last`), or where they are stacked, for the candidates (`candidates`) and
    the panel under them (`lower`)."""
    view: str = "off"
    """How the text shows its tokens: one of `VIEWS`."""


_DEFAULTS = asdict(Preferences())


@frozen
class StoredPreferences:
    """The file as it was read."""

    content: Mapping[str, Any]
    """All of it, what is not understood too."""
    values: Preferences
    """The valid ones; the others are as at the first start."""
    problems: tuple[str, ...] = ()
    """What is invalid, one sentence each."""
    damaged: bool = False
    """Nothing of the file could be read."""


class SavedPreferences:
    """Keeps them from one start to the next.

    Args:
        path: The file; None for `screen.json` in the user's configuration directory. It need not exist.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or presets.folder() / "screen.json"

    def read(self) -> StoredPreferences:
        """Read the file; report what is wrong with it, and use what is valid."""
        try:
            content = json.loads(read_regular(self.path, TEXT_LIMIT).decode())
        except FileNotFoundError:
            return StoredPreferences({}, Preferences())
        except (OSError, ValueError, RecursionError) as error:
            return self._damaged(str(getattr(error, "strerror", None) or error))
        if not isinstance(content, dict) or not isinstance(content.get("screen", {}), dict):
            return self._damaged('it is not {"screen": {NAME: VALUE}}')
        given = {name: value for name, value in content.get("screen", {}).items() if name in _DEFAULTS}
        wrong = [name for name, value in given.items() if not _valid(name, value)]
        problems = tuple(f"{name} in {self.path} is not used: {json.dumps(given[name])}." for name in wrong)
        values = {name: value for name, value in given.items() if name not in wrong}
        values["hidden"] = tuple(values.get("hidden", ()))
        return StoredPreferences(content, Preferences(**values), problems)

    def _damaged(self, why: str) -> StoredPreferences:
        problem = f"The look of the screen in {self.path} can't be read: {why}. Mend the file, or delete it."
        return StoredPreferences({}, Preferences(), (problem,), damaged=True)

    def save(self, values: Preferences) -> None:
        """Keep them, replacing those before; what is as at the first start is not written.

        Raises:
            EngineError: The file can't be written.
        """
        known = asdict(values)
        own = {name: value for name, value in known.items() if value != _DEFAULTS[name]}
        with alone(self.path):
            stored = self.read()
            before = stored.content.get("screen", {})
            unknown = {name: value for name, value in before.items() if name not in known}
            content = {**stored.content, "screen": {**own, **unknown}}
            if stored.damaged:
                set_aside(self.path)
            write(self.path, json.dumps(content, ensure_ascii=False, indent=2) + "\n")


def _valid(name: str, value: object) -> bool:
    """Whether the file's value can be one of that name; themes and panels are looked up by whoever knows them."""
    match name:
        case "theme":
            return isinstance(value, str)
        case "metric":
            return value in METRICS
        case "view":
            return value in VIEWS
        case "pace":
            return value is None or (isinstance(value, int | float) and not isinstance(value, bool))
        case "alone":
            return isinstance(value, bool)
        case "hidden":
            return isinstance(value, list) and all(isinstance(each, str) for each in value)
    return isinstance(value, dict) and all(
        key in SIZES and isinstance(size, int) and not isinstance(size, bool) for key, size in value.items()
    )
