"""The line of keys at the foot of a screen: as many as fit."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from textual.content import Content

KeyHint = tuple[str, str, int]
"""Keys, what they do, and their worth: the least worthy goes first where there is no room."""


def key_hints(width: int, hints: Sequence[KeyHint]) -> Content:
    """The keys that fit in `width` cells, in their order."""
    kept = list(hints)
    while kept and sum(cell_len(f"{key} {word}") + 2 for key, word, _ in kept) - 2 > width:
        kept.remove(min(kept, key=lambda hint: hint[2]))
    parts = [
        Content.styled(key, "bold $footer-key-foreground") + Content(f" {word}") for key, word, _ in kept
    ]
    return Content("  ").join(parts)
