"""A piece of text with what stands before and after it, cut to a width."""

from __future__ import annotations

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style

from inspector.display import pad, truncate
from inspector.widgets.canvas import Row


def around(before: str, found: str, after: str, cells: int, muted: Style, ink: Style) -> Row:
    """Three display texts in exactly so many cells: of the first the end, of the last the beginning.

    Args:
        before: What stands before it.
        found: The piece itself; of a long one the beginning.
        after: What stands after it.
        cells: The width.
        muted: Style of what stands around it.
        ink: Style of the piece.
    """
    found = truncate(found, cells)
    left = _end(before, (cells - cell_len(found)) * 3 // 5)
    right = pad(after, max(0, cells - cell_len(left) - cell_len(found)))
    return [Segment(left, muted), Segment(found, ink + Style(underline=True)), Segment(right, muted)]


def _end(text: str, cells: int) -> str:
    """The end of a display text, at most so many cells of it."""
    while cell_len(text) > max(0, cells):
        text = text[1:]
    return text
