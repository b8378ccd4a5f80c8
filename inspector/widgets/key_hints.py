"""The line of keys at the foot of a screen: as many as fit, each of which a click presses."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.cells import cell_len
from textual import events
from textual.content import Content
from textual.keys import _character_to_key
from textual.style import Style

KeyHint = tuple[str, str, int]
"""Keys, what they do, and their worth: the least worthy goes first where there is no room."""
_META = "press"
_KEY = re.compile(r"(?:ctrl\+|shift\+)?(?:[a-z]{2,}|\S)")
_NAMES = {"esc": "escape", "⏎": "enter", "⌫": "backspace", "⇥": "tab", "←": "left", "→": "right", "↑": "up",
          "↓": "down", "pgup": "pageup", "pgdn": "pagedown", "del": "delete"}  # fmt: skip
"""Keys that Textual names otherwise than a person reads them."""


def key_hints(width: int, hints: Sequence[KeyHint]) -> Content:
    """The keys that fit in `width` cells, in their order."""
    kept = list(hints)
    while kept and sum(cell_len(f"{key} {word}") + 2 for key, word, _ in kept) - 2 > width:
        kept.remove(min(kept, key=lambda hint: hint[2]))
    return Content("  ").join(_hint(keys, word) for keys, word, _ in kept)


def _hint(keys: str, word: str) -> Content:
    shown = Content.styled(keys, "bold $footer-key-foreground")
    found = list(_KEY.finditer(keys))
    for each in found:
        shown = shown.stylize(pressing(each.group()), each.start(), each.end())
    said = Content(f" {word}")  # of several keys a word names none
    return shown + (said.stylize(pressing(found[0].group())) if len(found) == 1 else said)


def pressing(key: str) -> Style:
    """The style of what presses a key when it is clicked.

    Args:
        key: As a person reads it.
    """
    return Style.from_meta({_META: key})


def pressed(event: events.Click) -> events.Key | None:
    """The key that a click presses; None where nothing of that kind was clicked."""
    key = event.style.meta.get(_META)
    if not isinstance(key, str):
        return None
    modifier, plus, last = key.rpartition("+") if len(key) > 1 else ("", "", key)
    name = _NAMES.get(last) or (_character_to_key(last) if len(last) == 1 else last)
    return events.Key(
        f"{modifier}{plus}{name}",
        " " if key == "space" else key if len(key) == 1 and key not in _NAMES else None,
    )
