"""The terminal's clipboard, and what is selected with the mouse."""

from __future__ import annotations

import os
import platform
import subprocess
from contextlib import suppress
from typing import Any

from textual.screen import Screen

_WITHOUT_OSC_52 = ("Apple_Terminal", "tmux")
"""TERM_PROGRAM of terminals that take no OSC 52, or only where they were told to."""
_SECONDS = 2.0
"""Most time that pbcopy may take: it takes some 10 ms."""


class Clipboard:
    """Puts texts on the clipboard of the terminal, which may refuse them without a word.

    Args:
        screen: On which something may be selected.
    """

    def __init__(self, screen: Screen[Any]) -> None:
        self._screen = screen

    @property
    def selected(self) -> str:
        """The text that is selected with the mouse; empty for none."""
        return self._screen.get_selected_text() or ""

    def copy(self, text: str) -> int:
        """Put a text on the clipboard; returns how many bytes it is there."""
        self._screen.app.copy_to_clipboard(text)
        return len(text.encode("utf-8", "replace"))


def copy_on_mac(text: str) -> None:
    """Put a text on the clipboard of the Mac that this process runs on, if its terminal can't be asked to.

    Over ssh, and in a browser, it would be the clipboard of another user.

    Args:
        text: Without half pairs of surrogates.
    """
    terminal = os.environ.get("TERM_PROGRAM")
    if platform.system() != "Darwin" or terminal not in _WITHOUT_OSC_52 or "SSH_CONNECTION" in os.environ:
        return
    with suppress(OSError, subprocess.SubprocessError):  # the terminal was asked, too
        subprocess.run(
            ["pbcopy"], input=text.encode(), env={**os.environ, "LC_CTYPE": "UTF-8"}, timeout=_SECONDS,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False,
        )  # fmt: skip
