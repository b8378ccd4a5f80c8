"""The state of the screen as it was left, for the next start: theme, metric, pace and the panels' room."""

from __future__ import annotations

from contextlib import suppress

from msgspec.structs import replace
from textual.app import App

from engine.errors import EngineError
from inspector.config.preferences import Preferences, SavedPreferences
from inspector.display import visible

SHORT = {"dark": "textual-dark", "light": "textual-light"}
"""Themes by the names that are typed."""


class Remembered:
    """Knows how the screen begins, and keeps how it is left.

    Args:
        given: What it begins with, and nothing is kept; None for what was kept.
    """

    def __init__(self, given: Preferences | None = None) -> None:
        self._file = SavedPreferences() if given is None else None
        stored = self._file.read() if self._file is not None else None
        self.problems = [visible(problem) for problem in stored.problems] if stored is not None else []
        """Faults of the file, one sentence each; printable."""
        self.values = stored.values if stored is not None else given or Preferences()
        """The state that the screen begins with."""
        self._theme = ""

    def begin(self, app: App[int], theme: str, pinned: bool) -> None:
        """Set the theme.

        Args:
            app: The application.
            theme: Name of the theme, instead of the one that was kept; empty for that one.
            pinned: Whether the environment names a theme.

        Raises:
            EngineError: There is no such theme.
        """
        kept = "" if pinned or self.values.theme not in app.available_themes else self.values.theme
        name = SHORT.get(theme, theme) or kept or app.theme
        if name not in app.available_themes:
            others = sorted(set(app.available_themes) - {*SHORT.values()})
            which = f"theme {theme!r}" if theme else f"theme {name!r}, which TEXTUAL_THEME names"
            raise EngineError(f"There is no {which}.", f"The themes are {', '.join((*SHORT, *others))}.")
        app.theme = name
        self._theme = app.theme

    def keep(self, theme: str, left: Preferences) -> None:
        """Write how the screen was left, where that is another way than it began.

        Args:
            theme: The present one; kept only if it isn't the one that the screen began with.
            left: All the rest.
        """
        left = replace(left, theme=theme if theme != self._theme else self.values.theme)
        if self._file is not None and left != self.values:
            with suppress(
                EngineError
            ):  # the program ends: it has no place for an answer, and no work is lost
                self._file.save(left)
