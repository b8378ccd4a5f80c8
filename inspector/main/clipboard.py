"""The terminal's clipboard, and what is selected with the mouse."""

from __future__ import annotations

from typing import Any

from textual.screen import Screen


class Clipboard:
    """Puts texts on the clipboard of the terminal, which may refuse them without a word.

    Args:
        screen: On which something may be selected.
    """

    def __init__(self, screen: Screen[Any]) -> None:
        self._screen = screen

    @property
    def selected(self) -> str:
        """What is selected with the mouse; empty where nothing is."""
        return self._screen.get_selected_text() or ""

    def copy(self, text: str) -> int:
        """Put a text on the clipboard; returns how many bytes it is there."""
        self._screen.app.copy_to_clipboard(text)
        return len(text.encode("utf-8", "replace"))
