"""The panels on screen: which are shown and where, by the size of the terminal and the user's choices."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct
from textual.css.styles import Styles
from textual.geometry import Region
from textual.widget import Widget

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen

MINIMUM = (40, 10)
"""Minimum columns and rows of the terminal."""


class Layout(Enum):
    """A kind of layout; the value is the style class of the screen."""

    TINY = "tiny"
    """Too small: only a message is shown."""
    SINGLE = "single"
    """One panel at a time."""
    BESIDE = "beside"
    """The text, and the answer beside it."""
    STACK = "stack"
    """The text, and the answer under it."""
    GRID = "grid"
    """The text over the steps, and beside them the answer, which may have KV cache and time under it."""


WIDE = 100
"""Columns from which a terminal with at least 18 rows has text and answer side by side."""
TALL = 32
"""Rows from which a terminal counts as tall, with room for more lines."""


def layout_for(width: int, height: int, enlarged: bool = False) -> Layout:
    """The layout for the size of a terminal.

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
    TEXT = "text"
    STEPS = "steps"
    """The steps: under the text if there is room, or else an answer."""
    UPPER = "upper"
    """The candidates: the first answer."""
    LOWER = "lower"
    """KV cache and time: under the candidates if there is room, or else one line each, or an answer."""
    ANSWER = "answer"
    """A tool's panel: shown only as the answer."""


class PanelPlace(Struct, frozen=True):
    id: str
    name: str
    """The name at the end of the status line, if one panel is shown at a time."""
    place: Place
    view: str = ""
    """Id of the action that shows it."""


class Arrangement:
    """The user's choice of panels: the current one, and the one that answers the open tab's question.

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
        """Id of the first answer, to which `close` returns."""
        self.current = self.text
        self.answer = self.first
        """Id of the panel that is the answer."""
        self.dialog = ""
        """Id of the tool's panel that an open dialog leaves visible; empty for none."""
        self.enlarged = False
        self.alone = False
        """True if the text and the answer are shown alone."""

    def go(self, panel: str, layout: Layout) -> None:
        """Make a panel the current one, and also the answer, unless it is the text or has its own place in the grid."""
        beside = self.by_id[panel].place is Place.STEPS and layout is Layout.GRID
        self.alone = self.alone and not beside
        self.current = panel
        if panel != self.text and not beside:
            self.answer = panel

    def close(self) -> None:
        """Go back to the text and the first answer."""
        self.current, self.answer = self.text, self.first

    def set_alone(self, alone: bool) -> None:
        """Show the text and the answer alone, or all panels again."""
        self.alone = alone
        if alone and self.current not in (self.text, self.answer):
            self.current = self.text

    def shown(self, layout: Layout, answer: str, tall: bool) -> frozenset[str]:
        """Ids of the panels on screen.

        Args:
            layout: The layout.
            answer: Id of the panel that is the answer.
            tall: Whether the terminal has many rows.
        """
        if layout is Layout.TINY:
            return frozenset()
        if layout is Layout.SINGLE:
            return frozenset({self.current})
        if self.alone or layout is Layout.BESIDE:
            return frozenset({self.text, answer})
        beside = self.of[Place.STEPS] if tall or layout is Layout.GRID else []
        return frozenset({self.text, answer, *self.of[Place.LOWER], *beside})

    def lines(self, layout: Layout, answer: str, covered: bool) -> frozenset[str]:
        """Ids of the panels that take one line each, if they are on screen: KV cache and time under another answer.

        Args:
            layout: The layout.
            answer: Id of the panel that is the answer.
            covered: Whether a view covers the answer.
        """
        lower = self.of[Place.LOWER]
        roomy = layout is Layout.GRID and answer in (self.first, *lower) and not covered
        none = roomy or layout in (Layout.SINGLE, Layout.BESIDE)
        return frozenset() if none else frozenset(lower) - {answer}


BELOW, BELOW_LOW = 16, 12
"""Lines of the lower panels; the latter on a terminal that isn't tall."""
STACKED = 9
"""Lines of the steps under text and answer, as in inspector.tcss."""
FRAME = 5
"""Lines around the panels: header, tabs, status and keys."""
LEAST_LINES = 4
"""Minimum lines of a panel whose size was changed, its frame included."""
WHOLE, LEFT = 1000, 400
"""The width, and the left column's part of it: the same for every answer, so that the text keeps its lines."""
LEAST_SHARE, MOST_SHARE = 200, 800
"""The smallest and the largest part of the left column."""
OF_NO_TEXT = "keep"
"""Id of the answer that can be shown while there is no text yet."""
ALONE = "Text and one panel. {alone} brings the others back"


class PanelPlaces(NamedTuple):
    """The places of the panels, now or after the next layout."""

    layout: Layout
    answer: str
    """Id of the panel that is the answer."""
    shown: frozenset[str]
    """Ids of the panels on screen."""
    lines: frozenset[str]
    """Ids of the panels that take one line each, if they are on screen."""


class PanelLayout:
    """Shows, hides, sizes and focuses panels.

    Args:
        screen: Its panels have the ids of the arrangement; `opening` replaces the text while there is none.
        arrangement: The user's choice of panels.
    """

    def __init__(self, screen: MainScreen, arrangement: Arrangement) -> None:
        self.arrangement = arrangement
        self.sizes: dict[str, int] = {}
        """The sizes that the user changed: `config.preferences.SIZES`."""
        self._screen = screen
        self._arranged: tuple[object, ...] | None = None
        self.waiting = True
        """True if there is no text yet."""
        self.focusing = ""
        """Id of the panel that `apply` focused last, until the screen receives the event."""
        self.projected = False
        """True if a narrator shows one panel and the card alone, for a projector."""

    @property
    def places(self) -> PanelPlaces:
        """The places of the panels, now or after the next layout.

        The panel of an open dialog's tool is the answer, and panels under the dialog are hidden. Beside a view, KV
        cache and time take one line each, even if one of them was the answer.
        """
        arrangement, own = self.arrangement, self.arrangement.answer
        covered, (width, height) = self._screen.open_view is not None, self._screen.app.size
        layout, lower = layout_for(width, height, arrangement.enlarged), arrangement.of[Place.LOWER]
        if (self.waiting and own != OF_NO_TEXT) or (own in lower and covered):
            own = ""
        answer = arrangement.dialog or own or arrangement.first
        shown = arrangement.shown(layout, answer, height >= TALL)
        if arrangement.dialog:
            beside = arrangement.of[Place.STEPS] if layout is not Layout.GRID else []
            shown -= {*lower, *beside}
        return PanelPlaces(layout, answer, shown, arrangement.lines(layout, answer, covered))

    @property
    def answer_area(self) -> Region:
        """The region of a view on the terminal."""
        places, area, opened = self.places, self._screen.query_one("#panels").region, self._screen.open_view
        if places.layout is not Layout.GRID or (opened is not None and opened.WHOLE):
            return area
        text = self._screen.query_one(f"#{self._text}").region
        lower = {*self.arrangement.of[Place.LOWER]} - {places.answer}
        under = 0 if self.arrangement.alone else len(lower)
        return Region(text.right, area.y, max(1, area.right - text.right), max(1, area.height - under))

    @property
    def _text(self) -> str:
        return "opening" if self.waiting else self.arrangement.text

    def apply(self) -> None:
        """Arrange the panels if their places have changed, and focus the current one."""
        arrangement, places, opened = self.arrangement, self.places, self._screen.open_view
        # true if a lesson points at the text
        about_text = self._screen.query_one(f"#{arrangement.text}").has_class("-spot")
        height = self._screen.query_one("#panels").region.height
        arranged = (
            places, self.waiting, arrangement.dialog != "", height, frozenset(self.sizes.items()),
            arrangement.alone, about_text, opened,
        )  # fmt: skip
        if arranged != self._arranged:
            self._arranged = arranged
            self._place(places, height or self._screen.app.size.height - FRAME, about_text)
        if opened is not None:
            return  # the view has the focus
        name = self._text if arrangement.current == arrangement.text else arrangement.current
        if self._screen.focused is None or self._screen.focused.id != name:
            self.focusing = name
            self._screen.set_focus(self._screen.query_one(f"#{name}"), scroll_visible=False)

    @property
    def classes(self) -> dict[str, bool]:
        opened, layout = self._screen.open_view, self.places.layout
        if opened is not None and opened.WHOLE:
            layout = Layout.STACK
        kinds = {f"-{kind.value}": kind is layout for kind in Layout}
        return {"-waiting": self.waiting, "-trying": self.arrangement.dialog != "", **kinds}

    def _place(self, places: PanelPlaces, room: int, about_text: bool) -> None:
        """Arrange the panels.

        Args:
            places: The places.
            room: Lines for all panels: fewer with a narrator's card.
            about_text: Whether the text gets at least half of them.
        """
        screen, arrangement, layout = self._screen, self.arrangement, places.layout
        opened = screen.open_view
        widgets: dict[str, Widget] = {
            id: screen.query_one(f"#{id}") for id in ("opening", *arrangement.by_id)
        }
        hidden: Collection[str] = ()
        if opened is not None:  # the view covers the answer, or all panels
            hidden = (places.answer,) if layout is Layout.GRID and not opened.WHOLE else tuple(widgets)
        screen.update_classes(self.classes)  # together, since each update computes all styles again
        for id, widget in widgets.items():
            instead = arrangement.text if self.waiting else "opening"
            of = arrangement.text if id == "opening" else id
            widget.display = of in places.shown and id not in hidden and id != instead
            widget.set_class(id in places.lines, "-line")
        # Textual fills the grid row by row: the answer follows the text
        steps = [id for id in arrangement.of[Place.STEPS] if id in places.shown]
        first = ("opening", arrangement.text, places.answer, *steps, *arrangement.by_id)
        grid = screen.query_one("#panels")
        order = [widgets[id] for id in dict.fromkeys(first)]
        if opened is not None:
            order.insert(order.index(widgets[places.answer]), opened)
        order += [each for each in grid.children if each not in order]  # hidden views
        if list(grid.children) != order:
            grid.sort_children(key=order.index)
        if opened is not None:
            widgets[places.answer] = opened
        self._size(widgets, places, room, about_text)
        # a child requests the layout: Textual reuses the arrangement of a grid whose own size is the same
        widgets["opening"].refresh(layout=True, repaint=False)

    def _size(self, widgets: Mapping[str, Widget], places: PanelPlaces, room: int, about_text: bool) -> None:
        """Size the panels: in a grid, text and steps on the left, the answer and the panels under it on the right.

        Args:
            widgets: The panels by id, with the open view, if any, as the answer.
            places: The places.
            room: Lines for all panels.
            about_text: Whether the text gets at least half of them.
        """
        layout, answer, shown, lines = places
        text, arrangement = self.arrangement.text, self.arrangement
        sizes = {} if arrangement.dialog else self.sizes
        grid, own = Styles(), self._screen.query_one("#panels").styles.inline
        spans: dict[str, int] = {}
        widths: dict[str, str] = {}
        heights: dict[str, int] = {}
        share = max(LEAST_SHARE, min(MOST_SHARE, sizes.get("left", LEFT)))
        if layout is Layout.GRID:
            others = shown - {answer}
            beside = [id for id in arrangement.of[Place.STEPS] if id in others]
            under = [id for id in arrangement.of[Place.LOWER] if id in others]
            usual = BELOW if self._screen.app.size.height >= TALL else BELOW_LOW
            most = max(2, room - (room // 2 if about_text else LEAST_LINES))
            below = max(2, min(sizes.get("below", usual), most))
            if lines:
                rows = [max(1, below - len(under)), *[1] * len(under)]
                spans = {answer: 2, **dict.fromkeys(under, 1)}
            else:
                rows = [below - below // 2, below // 2]
                spans = {answer: 1 if under else 3, **dict.fromkeys(under, 3 - len(under))}
            above = 1 if beside else 1 + len(rows)
            spans |= {text: above, **dict.fromkeys(beside, 1 + len(rows) - above)}
            grid.grid_rows = " ".join(map(str, ("1fr", *rows)))
            grid.grid_columns = f"{share}fr {WHOLE - share}fr"
            grid.grid_size_rows = 1 + len(rows)  # Textual doesn't count rows that are only spanned
        elif layout is Layout.STACK and "answer" in sizes:
            steps = [id for id in arrangement.of[Place.STEPS] if id in shown and id != answer]
            below = len(lines & shown) + STACKED * len(steps) + LEAST_LINES
            heights[answer] = max(2, min(sizes["answer"], room - below))
        elif layout is Layout.BESIDE and "left" in sizes:
            widths = {text: f"{share / 10}%", "opening": f"{share / 10}%", answer: f"{(WHOLE - share) / 10}%"}
        for name in ("grid_columns", "grid_rows", "grid_size_rows"):
            own.clear_rule(name)
        own.merge(grid)  # together, since setting each rule would draw all panels again
        for id, widget in widgets.items():
            widget.styles.row_span = spans.get(text if id == "opening" else id, 1)
            # clearing a rule that was never set would draw the panel again
            if id in heights or widget.styles.inline.has_rule("height"):
                widget.styles.height = heights.get(id)
            if id in widths or widget.styles.inline.has_rule("width"):
                widget.styles.width = widths.get(id)

    def resize(self, across: int, down: int) -> bool:
        """Change the width of the left column, or the lines of the lower panels, by a number of steps.

        Returns:
            False if this layout has no such divider.
        """
        places, area = self.places, self._screen.query_one("#panels").region
        text, room = self._screen.query_one(f"#{self._text}").region, area.height
        opened = self._screen.open_view
        whole = opened is not None and (opened.WHOLE or places.layout is not Layout.GRID)
        if self.arrangement.dialog or whole:
            return False
        if across and places.layout in (Layout.GRID, Layout.BESIDE):
            columns = text.width + across * max(1, round(area.width / 50))
            share = -(-WHOLE * columns // max(1, area.width))  # up: Textual rounds the width down
            self.sizes["left"] = max(LEAST_SHARE, min(MOST_SHARE, share))
        elif down and places.layout is Layout.GRID and len(places.shown) > 2:
            usual = BELOW if self._screen.app.size.height >= TALL else BELOW_LOW
            below = self.sizes.get("below", usual) - down
            self.sizes["below"] = max(2 * LEAST_LINES, min(room - LEAST_LINES, below))
        elif down and places.layout is Layout.STACK:
            lines = self._screen.query_one(f"#{places.answer}").region.height - down
            self.sizes["answer"] = max(LEAST_LINES, min(room - LEAST_LINES, lines))
        else:
            return False
        return True
