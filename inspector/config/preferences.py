"""State that is kept between starts of the program, in a JSON file each: the look of the screen, and breakpoints."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

from msgspec import Meta, Struct, ValidationError, convert, field
from msgspec.structs import asdict, replace

from engine.breakpoints import CONDITIONS, Breakpoints
from engine.errors import EngineError, SettingsError
from inspector import places
from inspector.config.files import TableFile
from inspector.scales import METRICS

if TYPE_CHECKING:
    from textual.app import App

VIEWS = ("off", "borders", "ids", "bytes")
"""Ways to mark the tokens in the text, in the order in which a key cycles through them."""
SIZES = ("left", "below", "answer")
"""Names in `Preferences.sizes`."""
SHORT = {"dark": "textual-dark", "light": "textual-light"}
"""Short names of themes that can be typed."""


class Preferences(Struct, frozen=True):
    """The look of the screen at the start."""

    theme: str = ""
    """Name of the theme; empty for Textual's default."""
    metric: Annotated[str, Meta(pattern=rf"^({'|'.join(METRICS)})\Z")] = "surprisal"
    """Metric that colours text and steps: one of `scales.METRICS`."""
    pace: float | None = None
    """Steps per second of a run; None for as fast as possible."""
    alone: bool = False
    """True if only the text and the candidates are shown."""
    sizes: Mapping[Annotated[str, Meta(pattern=rf"^({'|'.join(SIZES)})\Z")], int] = field(
        default_factory=dict
    )
    """Sizes that were changed: thousandths of the width for the left column (`left`), lines of the panels below
    (`below`), and, if text and answer are stacked, lines of the answer (`answer`)."""
    view: Annotated[str, Meta(pattern=rf"^({'|'.join(VIEWS)})\Z")] = "off"
    """Marks of the tokens in the text: one of `VIEWS`."""


Kind = TypeVar("Kind", Preferences, Breakpoints)


class Stored(Struct, Generic[Kind], frozen=True):
    """The content of a file."""

    values: Kind
    """The valid values of the file; the others are defaults."""
    problems: tuple[str, ...] = ()
    """Faults of the file, one sentence each."""


class _Saved(Generic[Kind]):
    """Keeps values between starts.

    Args:
        file: The file.
        defaults: Values of the first start.
        check: Returns a value of the file, from its name and JSON value, or raises a SettingsError.
    """

    def __init__(self, file: TableFile, defaults: Kind, check: Callable[[str, Any], Any]) -> None:
        self.path, self._file, self._check = file.path, file, check
        self._defaults: Kind = defaults

    def read(self) -> Stored[Kind]:
        """Read the file; report its faults, and use what is valid."""
        values, problems = self._file.read(self._check, asdict(self._defaults))
        return Stored(replace(self._defaults, **values), problems)

    def save(self, values: Kind) -> str:
        """Save values, replacing the earlier ones; defaults are not written.

        Returns:
            A sentence on what became of a damaged file; empty for most.

        Raises:
            EngineError: The file can't be written.
        """
        defaults = asdict(self._defaults)
        own = {name: value for name, value in asdict(values).items() if value != defaults[name]}
        if not own and not self.path.exists():
            return ""
        return self._file.change(lambda before: own | {k: v for k, v in before.items() if k not in defaults})


class SavedPreferences(_Saved[Preferences]):
    """Keeps the look of the screen, in `screen.json` of the user's configuration directory."""

    def __init__(self) -> None:
        path, fault = places.config() / "screen.json", "{name} in {path} is not used: {error}"
        what, mend = "The look of the screen", "Correct the file, or delete it."
        file = TableFile(path, "screen", "NAME: VALUE", what, fault, mend)
        super().__init__(file, Preferences(), _preference)


class SavedBreakpoints(_Saved[Breakpoints]):
    """Keeps the breakpoints.

    Args:
        path: The file; None for `breakpoints.json` in the user's configuration directory. It need not exist.
    """

    def __init__(self, path: Path | None = None) -> None:
        path = path or places.config() / "breakpoints.json"
        fault = "A breakpoint in {path} is not used: {error}"
        file = TableFile(path, "breakpoints", "CONDITION: VALUE", "The breakpoints", fault)
        super().__init__(file, Breakpoints(), _breakpoint)


def _preference(name: str, value: Any) -> Any:
    try:
        return getattr(convert({name: value}, Preferences), name)
    except ValidationError:
        raise SettingsError(name, f"{json.dumps(value)}.") from None


def _breakpoint(name: str, value: Any) -> Any:
    if name != "all_of":
        next(each for each in CONDITIONS if each.name == name).check(value)
    elif not isinstance(value, bool):
        raise SettingsError(name, f"all_of must be true or false, not {json.dumps(value)}.")
    return value


class Remembered:
    """The look of the screen at the start, which saves the look at the end.

    Args:
        given: The look to start with, in which case nothing is saved; None for the saved one.
    """

    def __init__(self, given: Preferences | None = None) -> None:
        self._file = SavedPreferences() if given is None else None
        stored = self._file.read() if self._file is not None else Stored(given or Preferences())
        self.values = stored.values
        """The look that the screen starts with."""
        self.problems = stored.problems
        """Faults of the file, one sentence each."""
        self._theme = ""

    def begin(self, app: App[int], theme: str, pinned: bool) -> None:
        """Set the theme.

        Args:
            app: The application.
            theme: Name of the theme; empty for the saved one.
            pinned: Whether the environment names a theme, which overrides the saved one.

        Raises:
            EngineError: There is no such theme.
        """
        kept = "" if pinned or self.values.theme not in app.available_themes else self.values.theme
        name = SHORT.get(theme, theme) or kept or app.theme
        if name not in app.available_themes:
            others = sorted(set(app.available_themes) - {*SHORT.values()})
            which = f"theme {theme!r}" if theme else f"theme {name!r}, which TEXTUAL_THEME names"
            raise EngineError(f"There is no {which}.", f"The themes are {', '.join((*SHORT, *others))}.")
        self._theme = app.theme = name

    def keep(self, theme: str, left: Preferences) -> None:
        """Save the look of the screen at the end, if it differs from the start.

        Args:
            theme: The current theme; saved only if it has changed.
            left: The rest of the look.
        """
        left = replace(left, theme=theme if theme != self._theme else self.values.theme)
        if self._file is not None and left != self.values:
            # the program ends: an error can't be shown, and no work is lost
            with suppress(EngineError):
                self._file.save(left)
