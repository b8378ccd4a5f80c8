"""What one start of the program leaves to the next: how the screen looked, and the breakpoints, a JSON file each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import asdict, fields

from engine.breakpoints import CONDITIONS, Breakpoints
from engine.errors import SettingsError
from inspector import places
from inspector.config.files import DamagedFileError, TableFile
from inspector.scales import METRICS

VIEWS = ("off", "borders", "ids", "bytes")
"""How the text shows where tokens begin and end, in the order in which a key goes through them."""
SIZES = ("left", "below", "answer")
"""Names of the sizes: `Preferences.sizes`."""


class Preferences(Struct, frozen=True):
    """The look with which the screen begins."""

    theme: str = ""
    """Name of the theme; empty for the toolkit's own choice."""
    metric: str = "surprisal"
    """What text and steps are coloured by: one of `scales.METRICS`."""
    pace: float | None = None
    """Steps a second of a run, None for as fast as it goes."""
    alone: bool = False
    """True if the text and the candidates are shown alone."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Sizes that were changed: thousandths of the width for the left column (`left`), lines of the panels below
    (`below`), and, if text and answer are stacked, lines of the answer (`answer`)."""
    view: str = "off"
    """How the text shows its tokens: one of `VIEWS`."""


_DEFAULTS = asdict(Preferences())


class StoredPreferences(Struct, frozen=True):
    """The file as it was read."""

    values: Preferences
    """The valid ones; the others are as at the first start."""
    problems: tuple[str, ...] = ()
    """What is invalid, one sentence each."""


class SavedPreferences:
    """Keeps them from one start to the next, in `screen.json` of the user's configuration directory."""

    def __init__(self) -> None:
        self.path = places.config() / "screen.json"
        what, mend = "The look of the screen", "Correct the file, or delete it."
        self._file = TableFile(self.path, "screen", "NAME: VALUE", what, mend)

    def read(self) -> StoredPreferences:
        """Read the file; report what is wrong with it, and use what is valid."""
        try:
            given = {name: value for name, value in self._file.read().items() if name in _DEFAULTS}
        except DamagedFileError as error:
            return StoredPreferences(Preferences(), (str(error),))
        wrong = [name for name, value in given.items() if not _valid(name, value)]
        problems = tuple(f"{name} in {self.path} is not used: {json.dumps(given[name])}." for name in wrong)
        values = {name: value for name, value in given.items() if name not in wrong}
        return StoredPreferences(Preferences(**values), problems)

    def save(self, values: Preferences) -> None:
        """Keep them, replacing those before; what is as at the first start is not written.

        Raises:
            EngineError: The file can't be written.
        """
        own = {name: value for name, value in asdict(values).items() if value != _DEFAULTS[name]}
        self._file.change(lambda before: own | {k: v for k, v in before.items() if k not in _DEFAULTS})


def _valid(name: str, value: object) -> bool:
    """True if the file's value can be one of that name; themes and panels are looked up by whoever knows them."""
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
    return isinstance(value, dict) and all(
        key in SIZES and isinstance(size, int) and not isinstance(size, bool) for key, size in value.items()
    )


# ---- breakpoints ------------------------------------------------------------------------------

NAMES = frozenset(field.name for field in fields(Breakpoints))


class StoredBreakpoints(Struct, frozen=True):
    """The file as it was read."""

    points: Breakpoints
    """Of the valid conditions."""
    problems: tuple[str, ...] = ()
    """What is invalid, one sentence each."""


class SavedBreakpoints:
    """Keeps breakpoints from one start to the next.

    Args:
        path: The file; None for `breakpoints.json` in the user's configuration directory. It need not exist.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or places.config() / "breakpoints.json"
        mend = "Correct the file; otherwise the next saving renames it and begins a new one."
        self._file = TableFile(self.path, "breakpoints", "CONDITION: VALUE", "The breakpoints", mend)

    def read(self) -> StoredBreakpoints:
        """Read the file; report what is wrong with it, and use what is valid."""
        values: dict[str, Any] = {}
        problems = []
        try:
            given = self._file.read()
        except DamagedFileError as error:
            return StoredBreakpoints(Breakpoints(), (str(error),))
        for name, value in given.items():
            try:
                values |= {name: _checked(name, value)} if name in NAMES else {}
            except SettingsError as error:
                problems.append(f"A breakpoint in {self.path} is not used: {error}")
        return StoredBreakpoints(Breakpoints(**values), tuple(problems))

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
        return self._file.change(lambda before: own | {k: v for k, v in before.items() if k not in NAMES})


def _checked(name: str, value: object) -> object:
    """A value of the file.

    Raises:
        SettingsError: It is no such value.
    """
    if name == "all_of":
        if not isinstance(value, bool):
            raise SettingsError(name, f"all_of must be true or false, not {json.dumps(value)}.")
    else:
        next(each for each in CONDITIONS if each.name == name).check(value)
    return value
