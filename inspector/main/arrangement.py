"""The panels on screen, by the size of the terminal and by what a person looks at. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from msgspec import Struct

MINIMUM = (40, 10)
"""Columns and rows."""


class Layout(Enum):
    """A kind of layout; the value is the style class of the screen."""

    TINY = "tiny"
    """Too small for anything but saying so."""
    SINGLE = "single"
    """One panel at a time."""
    BESIDE = "beside"
    """The text, and the answer at its side."""
    STACK = "stack"
    """The text, and the answer under it."""
    GRID = "grid"
    """The text over the steps, and the answer at their side, perhaps over KV cache and time."""


WIDE = 100
"""Columns from which on text and answer stand side by side with room for both."""
TALL = 32
"""Rows from which a terminal is not low."""


def layout_for(width: int, height: int, enlarged: bool = False) -> Layout:
    """The arrangement for a terminal of so many columns and rows.

    Args:
        width: Columns.
        height: Rows.
        enlarged: Whether one panel has the whole screen.
    """
    if width < MINIMUM[0] or height < MINIMUM[1]:
        return Layout.TINY
    if enlarged or (width < 80 and height < 18):
        return Layout.SINGLE
    if height < 18:
        return Layout.BESIDE
    return Layout.GRID if width >= WIDE else Layout.STACK


class Place(Enum):
    """The place of a panel."""

    TEXT = "text"
    STEPS = "steps"
    """Under the text where there is room, or else an answer."""
    UPPER = "upper"
    """The first answer: the candidates."""
    LOWER = "lower"
    """Under the candidates where there is room, or else a line each, or an answer: KV cache and time."""
    ANSWER = "answer"
    """A tool's: an answer and nothing else."""


class PanelPlace(Struct, frozen=True):
    """One panel of the screen."""

    id: str
    name: str
    """For the end of the status line, where one panel is shown at a time."""
    place: Place
    label: str = ""
    """As a message names it."""
    view: str = ""
    """Id of the action that shows it."""


class Arrangement:
    """The panel that a person is at, and the one that answers the question of the open tab.

    Args:
        panels: All panels; the first is the text.
    """

    def __init__(self, panels: Sequence[PanelPlace]) -> None:
        self.panels = tuple(panels)
        self.by_id = {panel.id: panel for panel in panels}
        self.of = {place: [panel.id for panel in panels if panel.place is place] for place in Place}
        """Ids of the panels of each place."""
        self.text = panels[0].id
        self.first = next(panel.id for panel in panels if panel.place is Place.UPPER)
        """The answer that a person begins with, and comes back to."""
        self.current = self.text
        self.answer = self.first
        """The panel in the place of the answer."""
        self.dialog = ""
        """The tool's panel that an open dialog of the tool leaves in sight; empty for none."""
        self.enlarged = False
        self.alone = False
        """True if the text and the answer are shown alone."""
        self.hidden: frozenset[str] = frozenset()
        """Those that were hidden: they come back when they are gone to."""

    @property
    def panel(self) -> PanelPlace:
        """The current panel."""
        return self.by_id[self.current]

    def go(self, panel: str, layout: Layout) -> None:
        """Make a panel the current one, and the answer, unless it is the text, or has a place of its own."""
        self.hidden -= {panel}
        beside = self.by_id[panel].place is Place.STEPS and layout is Layout.GRID
        self.alone = self.alone and not beside
        self.current = panel
        if panel != self.text and not beside:
            self.answer = panel

    def look_at(self, panel: str) -> None:
        """Make a panel the current one that is shown where it is."""
        self.current = panel

    def close(self) -> None:
        """Go back to the text and the first answer."""
        self.current, self.answer = self.text, self.first

    def can_hide(self, panel: str) -> bool:
        """True if a panel can be hidden: one that is shown beside text and answer."""
        return panel in (*self.of[Place.LOWER], *self.of[Place.STEPS])

    def hide(self, panel: str) -> None:
        """Hide a panel, and go back to the text; where it is the answer, to the first one."""
        self.hidden |= {panel}
        self.current = self.text
        self.answer = self.first if self.answer == panel else self.answer

    def set_alone(self, alone: bool) -> None:
        """Show the text and the answer alone, or all panels again."""
        self.alone = alone
        if alone and self.current not in (self.text, self.answer):
            self.current = self.text

    def shown(self, layout: Layout, answer: str, tall: bool) -> frozenset[str]:
        """The panels on screen.

        Args:
            layout: The arrangement.
            answer: The panel in the place of the answer.
            tall: Whether the terminal has many rows.
        """
        match layout:
            case Layout.TINY:
                return frozenset()
            case Layout.SINGLE:
                return frozenset({self.current})
            case Layout.BESIDE:
                return frozenset({self.text, answer})
        if self.alone:
            return frozenset({self.text, answer})
        beside = self.of[Place.STEPS] if tall or layout is Layout.GRID else []
        return frozenset({self.text, answer, *({*self.of[Place.LOWER], *beside} - self.hidden)})

    def lines(self, layout: Layout, answer: str, covered: bool) -> frozenset[str]:
        """The panels that are one line each, where they are on screen: KV cache and time under another answer.

        Args:
            layout: The arrangement.
            answer: The panel in the place of the answer.
            covered: Whether a tool's own screen is over it.
        """
        lower = self.of[Place.LOWER]
        roomy = layout is Layout.GRID and answer in (self.first, *lower) and not covered
        return (
            frozenset() if roomy or layout in (Layout.SINGLE, Layout.BESIDE) else frozenset(lower) - {answer}
        )
