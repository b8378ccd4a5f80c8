"""Marks as words and signs; all of them printable."""

from __future__ import annotations

from engine.records import Marked
from inspector.display import visible

STAR, NOTE, CAPTION = "★", "✎", "❝"


def written(mark: Marked) -> str:
    """Marks on one line: `★ ending A ✎ why this one? ❝ watch the entropy`."""
    parts = [STAR if mark.bookmarked else "", visible(mark.name)]
    parts += [f"{NOTE} {visible(mark.note)}" if mark.note else ""]
    parts += [f"{CAPTION} {visible(mark.caption)}" if mark.caption else ""]
    return " ".join(part for part in parts if part)
