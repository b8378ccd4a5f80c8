"""The panels on screen, by the size of the terminal and by the panel that a person looked at last. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import Enum

from engine.frozen import frozen

MINIMUM = (40, 10)
"""Columns and rows."""


class Layout(Enum):
    """A kind of layout; the value is the style class of the screen."""

    TINY = "tiny"
    """Too small for anything but saying so."""
    SINGLE = "single"
    """One at a time."""
    BESIDE = "beside"
    """The text, and one of the others at its side."""
    STACK = "stack"
    """The text, the candidates under it, one of the others under them."""
    GRID = "grid"
    """All."""


def layout_for(width: int, height: int, enlarged: bool = False, alone: bool = False) -> Layout:
    """The arrangement for a terminal of so many columns and rows.

    Args:
        width: Columns.
        height: Rows.
        enlarged: Whether one panel has the whole screen.
        alone: Whether the text and the candidates are shown alone: a narrow terminal has room for them.
    """
    if width < MINIMUM[0] or height < MINIMUM[1]:
        return Layout.TINY
    if enlarged or (width < 80 and not (alone and height >= 20)):
        return Layout.SINGLE
    if height < 20:
        return Layout.BESIDE
    return Layout.GRID if width >= 120 else Layout.STACK


class Place(Enum):
    """The place of a panel."""

    TEXT = "text"
    UPPER = "upper"
    """Under the text, or at its side: the candidates."""
    LOWER = "lower"
    """Of these one is shown where not all have room."""
    SIDE = "side"
    """A tool's, in the place of the upper ones and all lower ones but the first."""
    BELOW = "below"
    """A tool's, in the place of the first lower one, or of whichever is shown."""


@frozen
class PanelPlace:
    """One panel of the screen."""

    id: str
    name: str
    """For the end of the status line, where one panel is shown at a time."""
    place: Place
    label: str = ""
    """For its number key in the finder."""
    called: str = ""
    """As a sentence calls it: `the tree`."""
    synonyms: str = ""
    """What else a person may call it, with commas between."""


class Arrangement:
    """The panel that a person is at, those looked at before it, and the tools' panels that are open.

    Args:
        panels: All panels in the order of the number keys; the first is the text.
    """

    def __init__(self, panels: Sequence[PanelPlace]) -> None:
        self.panels = tuple(panels)
        self._places = {panel.id: panel.place for panel in panels}
        self.text = panels[0].id
        self._upper = self._first(Place.UPPER)
        self.current = self.text
        self.other = self._upper
        """The one last visited at the side of the text."""
        self.lower = self._first(Place.LOWER)
        """The one last visited of those that share a place."""
        self.open_side: str | None = None
        self.open_below: str | None = None
        """The tools' panels that are open."""
        self.enlarged = False
        self.alone = False
        """Whether the text and the candidates are shown alone."""
        self.spotlight = ""
        """The panel that a lesson is about: where not all have room, it is shown beside the text alone."""
        self.hidden: frozenset[str] = frozenset()
        """Those that were hidden: they come back when they are gone to."""

    def _first(self, place: Place) -> str:
        return next(panel.id for panel in self.panels if panel.place is place)

    @property
    def number(self) -> int:
        """Place of the current panel, counted from 0."""
        return next(place for place, panel in enumerate(self.panels) if panel.id == self.current)

    @property
    def name(self) -> str:
        """Name of the current panel."""
        return self.panels[self.number].name

    def go(self, panel: str, layout: Layout) -> None:
        """Make a panel the current one."""
        place, wide = self._places[panel], layout is Layout.GRID
        first_lower = {self._first(Place.LOWER)}
        self.open_side = self._kept(self.open_side, panel, Place.SIDE, place is Place.TEXT or (
            wide and (panel in first_lower or place is Place.BELOW)
        ))  # fmt: skip
        leaves = panel in first_lower if wide else place is Place.LOWER
        self.open_below = self._kept(self.open_below, panel, Place.BELOW, not leaves)
        self.hidden -= {panel}
        self.alone = self.alone and place in (Place.TEXT, Place.UPPER, Place.SIDE)
        self.current = panel
        self.other = panel if place is not Place.TEXT else self.other
        self.lower = panel if place is Place.LOWER else self.lower

    def _kept(self, open: str | None, panel: str, place: Place, stays: bool) -> str | None:
        """The panel of a tool that is open in a place once another is gone to."""
        if self._places[panel] is place:
            return panel
        return open if stays else None

    def is_open(self, panel: str, shown: Collection[str]) -> bool:
        """Whether a tool's panel is open.

        Args:
            panel: The panel.
            shown: Those on screen: one below gives way on a small screen, and is opened again then.
        """
        return panel == self.open_side if self._places[panel] is Place.SIDE else panel in shown

    def neighbour(self, by: int, side: bool) -> str:
        """The panel so many places further, of those that are not hidden, or not shown beside the two alone.

        Args:
            by: How many.
            side: Whether tools' panels at the side have anything to show.
        """
        empty = () if side else [panel.id for panel in self.panels if panel.place is Place.SIDE]
        left = [
            panel.id
            for panel in self.panels
            if panel.id == self.current
            or (panel.id not in empty and (self._seen(panel.id) or self._is_top(panel)))
        ]
        return left[(left.index(self.current) + by) % len(left)]

    def _is_top(self, panel: PanelPlace) -> bool:
        """Whether a panel is not one of those under the upper ones, and not hidden."""
        return panel.place not in (Place.LOWER, Place.BELOW) and panel.id not in self.hidden

    def close(self, panel: str) -> None:
        """Close a tool's panel and go back to the text."""
        if self._places[panel] is Place.SIDE:
            self.open_side, self.other = None, self._upper
        else:
            self.open_below = None
            self.other = self._upper if self.other == panel else self.other
        self.current = self.text

    @property
    def top(self) -> frozenset[str]:
        """The two that are shown alone."""
        return frozenset({self.text, self._upper})

    def is_tool(self, panel: str) -> bool:
        """Whether a panel is a tool's, which is closed rather than hidden."""
        return self._places[panel] in (Place.SIDE, Place.BELOW)

    def can_hide(self, panel: str) -> bool:
        """Whether a panel can be hidden: the text stays."""
        return self._places.get(panel) in (Place.LOWER, Place.UPPER)

    def hide(self, panel: str) -> None:
        """Hide a panel, and go back to the text."""
        self.hidden |= {panel}
        self.current = self.text
        self.other = self._upper if self.other == panel else self.other
        left = [each.id for each in self.panels if each.place is Place.LOWER and each.id not in self.hidden]
        self.lower = left[0] if left and self.lower in self.hidden else self.lower

    def set_alone(self, alone: bool) -> None:
        """Show the text and the candidates alone, or all panels again."""
        self.alone = alone
        self.hidden -= {self._upper} if alone else set()
        if alone and self._places[self.current] in (Place.LOWER, Place.BELOW):
            self.current, self.other = self.text, self._upper

    def shown(self, layout: Layout, side: str | None) -> frozenset[str]:
        """The panels on screen.

        Args:
            layout: The arrangement.
            side: The tool's panel at the side that is open, or is wanted for as long as a dialog is.
        """
        match layout:
            case Layout.TINY:
                return frozenset()
            case Layout.SINGLE:
                return frozenset({self.current})
            case Layout.BESIDE:
                return frozenset({self.text, self.other}) - self.hidden
            case Layout.STACK if side:
                return frozenset({self.text, side})
            case Layout.STACK if self.spotlight:
                return frozenset({self.text, self._upper if self.spotlight == self.text else self.spotlight})
            case Layout.STACK:
                lower = self._seen(self.open_below or self.lower)
                return frozenset({self.text, self._upper, *lower}) - self.hidden
        below = self.open_below or self._first(Place.LOWER)
        if side:
            return frozenset({self.text, side, *self._seen(below)})
        first = self._first(Place.LOWER)
        rest = [panel.id for panel in self.panels if panel.place is Place.LOWER and panel.id != first]
        return frozenset({self.text, self._upper, *self._seen(below, *rest)}) - self.hidden

    def _seen(self, *panels: str) -> frozenset[str]:
        """Those of the panels under the upper ones that are not hidden."""
        return frozenset() if self.alone else frozenset(panels) - self.hidden
