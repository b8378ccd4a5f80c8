"""Which panels are on screen, by the size of the terminal."""

from __future__ import annotations

from enum import Enum

PANELS: tuple[tuple[str, str], ...] = (
    ("text", "Text"),
    ("candidates", "Next token"),
    ("steps", "Steps"),
    ("kv", "KV cache"),
    ("timing", "Time"),
    ("sampler", "Why this token"),
    ("tree", "Tree"),
)
"""Id and name, in the order of the number keys."""
TEXT, CANDIDATES, STEPS, KV, TIMING, SAMPLER, TREE = range(7)
DECK = frozenset({STEPS, KV, TIMING})
"""Those that share one place where not all have room."""
MINIMUM = (40, 10)
"""Columns and rows."""


class Layout(Enum):
    """How the panels are arranged; the value is the style class of the screen."""

    TINY = "tiny"
    """Too small for anything but saying so."""
    SINGLE = "single"
    """One at a time."""
    BESIDE = "beside"
    """The text, and one of the others beside it."""
    STACK = "stack"
    """The text, the candidates under it, one of the others under them."""
    GRID = "grid"
    """All."""


def layout_for(width: int, height: int, enlarged: bool = False) -> Layout:
    """The arrangement for a terminal of so many columns and rows."""
    if width < MINIMUM[0] or height < MINIMUM[1]:
        return Layout.TINY
    if enlarged or width < 80:
        return Layout.SINGLE
    if height < 20:
        return Layout.BESIDE
    return Layout.GRID if width >= 120 else Layout.STACK


def panels_shown(
    layout: Layout, current: int, other: int, deck: int, why: bool = False, tree: bool = False
) -> frozenset[int]:
    """Places in `PANELS` of the panels on screen.

    Args:
        layout: The arrangement.
        current: The panel that the person is at.
        other: The one last visited beside the text.
        deck: The one last visited of steps, KV cache and time.
        why: Whether the sampler stands in the place of candidates, KV cache and time.
        tree: Whether the tree stands in the place of the steps, or of the deck.
    """
    match layout:
        case Layout.TINY:
            return frozenset()
        case Layout.SINGLE:
            return frozenset({current})
        case Layout.BESIDE:
            return frozenset({TEXT, other})
        case Layout.STACK:
            return frozenset({TEXT, SAMPLER} if why else {TEXT, CANDIDATES, TREE if tree else deck})
        case Layout.GRID:
            below = TREE if tree else STEPS
            return frozenset({TEXT, below, SAMPLER} if why else {TEXT, CANDIDATES, below, KV, TIMING})
