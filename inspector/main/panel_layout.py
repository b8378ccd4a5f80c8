"""The places of the panels for the size of the terminal, and the changes that a person makes to them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from textual import events
from textual.containers import Container
from textual.css.styles import Styles
from textual.geometry import Region
from textual.screen import Screen
from textual.widget import Widget

from inspector.keys import key_for, with_keys
from inspector.main.arrangement import TALL, Arrangement, Layout, Place, layout_for
from inspector.main.division import (
    HALF,
    LEAST_LINES,
    WHOLE,
    Grip,
    divided,
    divider_at,
    lined,
    moved,
)
from inspector.main.tool_screen import ToolScreen

BELOW, BELOW_LOW = 16, 12
"""Lines of the panels below; the latter on a low terminal."""
FRAME = 5
"""Lines around the panels: header, tabs, status and keys."""
OF_NO_TEXT = "learn"
"""The answer that can be shown while there is no text yet."""
ALONE = "Text and answer alone. {alone} brings the other panels back"


# ---- where the panels are -----------------------------------------------------------------------


class PanelPlaces(NamedTuple):
    """Where the panels are, or are about to be."""

    layout: Layout
    answer: str
    """The panel in the place of the answer."""
    shown: frozenset[str]
    """Ids of the panels on screen."""
    lines: frozenset[str]
    """Of those that are one line each, where they are on screen."""


class PanelLayout:
    """Shows, hides, sizes and focuses panels.

    Args:
        screen: Its panels have the ids of the arrangement; `opening` takes the place of the text while there is none.
        arrangement: What a person looked at last.
    """

    def __init__(self, screen: Screen[None], arrangement: Arrangement) -> None:
        self.arrangement = arrangement
        self.sizes: dict[str, int] = {}
        """Of the dividers that were moved: `config.preferences.SIZES`."""
        self._screen = screen
        self._arranged: tuple[object, ...] | None = None
        self._about_text = False
        """True if a lesson is about the text."""
        self.opened: Callable[[], ToolScreen[Any] | None] = lambda: None
        """The open view, if any."""
        self.waiting = True
        """True if there is no text yet."""
        self.columns = 0
        """That panels have at most before a class, 0 for all."""

    @property
    def places(self) -> PanelPlaces:
        """Where the panels are, or are about to be.

        The panel of an open dialog is the answer before any other, and none is shown that the dialog lies over. Under a
        tool's own screen KV cache and time are a line each, whichever of them was the answer.
        """
        arrangement, own, covered = self.arrangement, self.arrangement.answer, self.opened() is not None
        width, height = self._screen.app.size
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
        """The place of the answer on the terminal, from its frame to that of the last panel under it."""
        places, area = self.places, self._screen.query_one("#panels").region
        if places.layout is not Layout.GRID:
            return area
        text = self._screen.query_one(f"#{'opening' if self.waiting else self.arrangement.text}").region
        lower = {*self.arrangement.of[Place.LOWER]} - self.arrangement.hidden - {places.answer}
        under = 0 if self.arrangement.alone else len(lower)
        return Region(text.right, area.y, max(1, area.right - text.right), max(1, area.height - under))

    def apply(self) -> None:
        """Arrange the panels where anything about that changed, and focus the current one."""
        arrangement, places = self.arrangement, self.places
        area, opened = self._area(places), self.opened()
        about_text = self._screen.query_one(f"#{arrangement.text}").has_class("-spot")
        arranged = (
            places, self.waiting, arrangement.dialog != "", area.size, frozenset(self.sizes.items()),
            arrangement.alone, about_text, opened,
        )  # fmt: skip
        if arranged != self._arranged:
            self._arranged, self._about_text = arranged, about_text
            self._place(places, area)
        current, focused = arrangement.current, self._screen.focused
        if opened is not None:
            opened.take_focus()
            return
        name = "opening" if self.waiting and current == arrangement.text else current
        if focused is None or focused.id != name:
            self._screen.set_focus(self._screen.query_one(f"#{name}"), scroll_visible=False)

    def begin(self) -> None:
        """Give the screen its first classes, before it has widgets whose styles would be computed anew."""
        self._screen.update_classes(self._classes(self.places.layout), update=False)

    def _classes(self, layout: Layout) -> dict[str, bool]:
        trying = self.arrangement.dialog != ""
        classes = {"-waiting": self.waiting, "-trying": trying}
        for kind in Layout:
            classes[f"-{kind.value}"] = kind is layout
        return classes

    def _place(self, places: PanelPlaces, area: Region) -> None:
        """Put the panels in their places.

        Args:
            places: Where they are about to be.
            area: The room of all but those of one line in a stack, as far as it is known.
        """
        screen, arrangement, waiting, shown = self._screen, self.arrangement, self.waiting, places.shown
        widgets: dict[str, Widget] = {}
        for id in ("opening", *arrangement.by_id):
            widgets[id] = screen.query_one(f"#{id}")
        # together: each change by itself has the styles of all widgets computed again
        screen.update_classes(self._classes(places.layout))
        opened, alone = self.opened(), places.layout is not Layout.GRID
        hidden: Collection[str] = ()
        if opened is not None:  # in the place of the answer, or of all panels
            hidden = ("opening", *arrangement.by_id) if alone else (places.answer,)
        for id in arrangement.by_id:
            shows = id in shown and id not in hidden
            widgets[id].display = shows and not (waiting and id == arrangement.text)
            if widgets[id].has_class("-line") is not (id in places.lines):
                widgets[id].set_class(id in places.lines, "-line")
        widgets["opening"].display = waiting and arrangement.text in shown and "opening" not in hidden
        # the toolkit fills the grid row by row: the answer follows the text
        steps = [id for id in arrangement.of[Place.STEPS] if id in shown]
        first = ["opening", arrangement.text, places.answer, *steps]
        grid = screen.query_one("#panels")
        order = [widgets[id] for id in dict.fromkeys((*first, *arrangement.by_id))]
        if opened is not None:
            order.insert(order.index(widgets[places.answer]), opened)
        order += [each for each in grid.children if each not in order]  # views that are going
        if list(grid.children) != order:
            grid.sort_children(key=order.index)
        sizes = {} if arrangement.dialog else self.sizes
        # lines of all panels: a narrator's card leaves less
        room = area.height or screen.app.size.height - FRAME
        self._divide(widgets, places, sizes, room)
        self._size(widgets, places, sizes, room)
        # with the next paint: what each panel asks for may come after it
        screen.refresh(layout=True, repaint=False)

    # ---- the room of each -------------------------------------------------------------------

    def _area(self, places: PanelPlaces) -> Region:
        """Of all panels, in a stack without those of one line, which are the last."""
        region = self._screen.query_one("#panels").region
        lines = len(places.lines & places.shown) if places.layout is Layout.STACK else 0
        return Region(region.x, region.y, region.width, max(0, region.height - lines))

    def _divide(
        self,
        widgets: Mapping[str, Widget],
        places: PanelPlaces,
        sizes: Mapping[str, int],
        room: int,
    ) -> None:
        """Divide the grid of the panels on screen: text and steps left, the answer and what is under it right.

        Where the layout is no grid, its rows and columns are nobody's.
        """
        spans: Mapping[str, tuple[int, int]] = {}
        grid, own = Styles(), self._screen.query_one("#panels").styles.inline
        if places.layout is Layout.GRID:
            answer, of, others = places.answer, self.arrangement.of, places.shown - {places.answer}
            left = [self.arrangement.text, *[id for id in of[Place.STEPS] if id in others]]
            under = [id for id in of[Place.LOWER] if id in others]
            lines = sizes.get("below", BELOW if self._screen.app.size.height >= TALL else BELOW_LOW)
            most = max(2, room - (room // 2 if self._about_text else LEAST_LINES))
            below, share = max(2, min(lines, most)), sizes.get("left", HALF)
            if places.lines:
                division = lined(left, answer, under, below, share)
            else:
                division = divided(left, [answer, *under], below, share, sizes.get("last"))
            # the toolkit by itself counts no row that is spanned only
            spans, rows = division.spans, len(division.rows.split())
            grid.grid_columns, grid.grid_rows, grid.grid_size_rows = division.columns, division.rows, rows
        for name in ("grid_columns", "grid_rows", "grid_size_rows"):
            own.clear_rule(name)
        own.merge(grid)  # each by itself would have all panels drawn anew, those that stay as they are, too
        widgets["opening"].refresh(layout=True, repaint=False)  # what is in the grid asks for its layout
        placed = list(widgets.items())
        if (opened := self.opened()) is not None:
            placed.append((places.answer, opened))
        for id, widget in placed:
            rows, columns = spans.get(self.arrangement.text if id == "opening" else id, (1, 1))
            widget.styles.row_span, widget.styles.column_span = rows, columns

    def _size(
        self,
        widgets: Mapping[str, Widget],
        places: PanelPlaces,
        sizes: Mapping[str, int],
        room: int,
    ) -> None:
        """Give panels the sizes that a person gave them, where they stand side by side or on each other."""
        layout, answer, shown, _ = places
        lines, share = {}, sizes.get("left") if layout is Layout.BESIDE and len(shown) == 2 else None
        if layout is Layout.STACK and "candidates" in sizes:
            most = room - LEAST_LINES
            for id in self.arrangement.of[Place.STEPS]:
                if id not in shown or id == answer:
                    continue
                lines[id] = max(LEAST_LINES, min(sizes.get("lower", LEAST_LINES), most - LEAST_LINES))
            lines[answer] = max(2, min(sizes["candidates"], most - sum(lines.values())))
        for id, widget in widgets.items():
            text = id in ("opening", self.arrangement.text)
            own = (share if text else WHOLE - share) if share else WHOLE
            # to take back what was never given has the toolkit draw the panel anew
            if id in lines or widget.styles.inline.has_rule("height"):
                widget.styles.height = lines.get(id)
            if share or widget.styles.inline.has_rule("width"):
                widget.styles.width = f"{100 * own / WHOLE}%" if share else None

    # ---- dividers ---------------------------------------------------------------------------

    def divider_at(self, x: int, y: int) -> str:
        """The divider under a cell of the screen, empty for none."""
        places = self.places
        if places.layout not in (Layout.GRID, Layout.STACK, Layout.BESIDE) or self.arrangement.dialog:
            return ""
        stacked = places.layout is Layout.STACK
        found = divider_at(x, y, self._regions(places), self._area(places), stacked)
        return found if found == "left" or found in self._present(places) else ""

    def grip(self, x: int, y: int) -> Grip | None:
        """Take hold of the divider under a cell of the screen; None where there is none."""
        divider, places = self.divider_at(x, y), self.places
        return Grip(divider, x, y, self._regions(places), self._area(places)) if divider else None

    def drag(self, divider: str, x: int, y: int) -> None:
        """Move a divider to a cell of the screen, unless it went with a new size of the terminal."""
        places = self.places
        present = self._present(places)
        if divider != "left" and divider not in present:
            return
        changed = moved(divider, x, y, {**self.sizes, **present}, self._area(places))
        names = ("candidates", "lower") if divider in ("candidates", "lower") else (divider,)
        self.sizes |= {name: changed[name] for name in names if name in changed}

    def nudge(self, across: int, down: int) -> bool:
        """Move the divider at the current panel by so many steps; returns whether there is one."""
        places = self.places
        area, text = self._area(places), self._regions(places).get(self.arrangement.text)
        if text is None or self.arrangement.dialog:
            return False
        if across:
            divider = "left" if text.right < area.right else ""
            self.drag(divider, text.right + across * max(1, round(area.width / 50)), text.y)
        else:
            divider, edge = self._line(places)
            self.drag(divider, text.x, edge + down)
        return bool(divider)

    def _line(self, places: PanelPlaces) -> tuple[str, int]:
        """The line between panels that is at the current one, and its row; no name where there is none."""
        present, area, current = self._present(places), self._area(places), self.arrangement.current
        lowest = area.bottom - present.get("last", 0)
        at = self._regions(places).get(current)  # none for a panel at the side while there is no text
        if "last" in present and at is not None and lowest in (at.bottom, at.y):
            return "last", lowest
        if "below" in present:
            return "below", area.bottom - present["below"]
        if "candidates" not in present:
            return "", 0
        lower = present.get("lower", 0)
        if lower and current not in (self.arrangement.text, places.answer):
            return "lower", area.bottom - lower
        return "candidates", area.bottom - lower - present["candidates"]

    def _regions(self, places: PanelPlaces) -> dict[str, Region]:
        """Regions of the panels on screen, but those of one line, which no divider moves.

        The text's place has something else in it while there is no text.
        """
        text, shown = "opening" if self.waiting else self.arrangement.text, places.shown - places.lines
        widgets = {
            id: text if id == self.arrangement.text else id for id in self.arrangement.by_id if id in shown
        }
        return {id: self._screen.query_one(f"#{widget}").region for id, widget in widgets.items()}

    def _present(self, places: PanelPlaces) -> dict[str, int]:
        """The lines that can be moved now, as they are on screen."""
        regions, area = self._regions(places), self._area(places)
        if places.layout is Layout.GRID:
            tops = [region.bottom for region in regions.values() if region.y == area.y]
            if not tops:
                return {}  # the terminal has just got another size, and the panels not yet their places
            under = area.bottom - min(tops)
            column = sorted(
                (region for region in regions.values() if region.right == area.right), key=lambda each: each.y
            )
            last = {"last": column[2].height} if len(column) == 3 else {}
            return {"below": under, **last} if under else {}
        if places.layout is Layout.STACK and places.answer in regions:
            present = {"candidates": regions[places.answer].height}
            for id in {*self.arrangement.of[Place.STEPS]} & {*regions} - {places.answer}:
                present["lower"] = regions[id].height
            return present
        return {}


# ---- what a person changes about it -------------------------------------------------------------


class PanelRoom:
    """Hides, enlarges and sizes panels.

    Args:
        layout: Puts them in their places.
        answer: Answers the last key, and has everything shown again.
    """

    def __init__(self, layout: PanelLayout, answer: Callable[..., None]) -> None:
        self._layout, self._answer = layout, answer

    def hide(self, panels: Collection[str]) -> None:
        """Hide panels, and name the key that brings them back."""
        arrangement = self._layout.arrangement
        going = [
            panel for panel in arrangement.panels if panel.id in panels and arrangement.can_hide(panel.id)
        ]
        for panel in going:
            arrangement.hide(panel.id)
        self._answer(
            f"{_listed([panel.label for panel in going])} hidden. {key_for('usual_room')} shows all panels again"
            if going
            else "Only steps, KV cache and time can be hidden: click one of them first"
            if panels
            else ""
        )

    def dragged(self, panels: Collection[str]) -> None:
        """Say which panels letting go of the mouse would hide, and have everything shown again."""
        going = [panel for panel in self._layout.arrangement.panels if panel.id in panels]
        names = [panel.label for panel in going]
        self._answer(f"Let go to hide {_listed(names)}" if names else "")

    def let_go(self, panels: Collection[str]) -> None:
        """Hide panels that a divider left no room; where one is shown at a time, none takes its place."""
        arrangement, answer = self._layout.arrangement, self._layout.places.answer
        if arrangement.text in panels or answer in panels:
            arrangement.look_at(answer if arrangement.text in panels else arrangement.text)
            arrangement.enlarged = True
            self._answer(
                f"{arrangement.panel.label} alone. {key_for('enlarge')} or esc brings the others back"
            )
        else:
            self.hide(panels)

    def show_alone(self) -> None:
        """Show the text and the answer alone, or all panels again."""
        self._layout.arrangement.set_alone(not self._layout.arrangement.alone)
        self._answer(with_keys(ALONE) if self._layout.arrangement.alone else "")

    def enlarge(self) -> None:
        """Give the current panel the whole screen, or back."""
        self._layout.arrangement.enlarged = not self._layout.arrangement.enlarged
        enlarged = self._layout.arrangement.enlarged
        self._answer(f"Enlarged: {key_for('enlarge')} or esc goes back" if enlarged else "")

    def resize(self, across: int, down: int) -> None:
        """Move the divider between the columns, or the line under the current panel, by so many steps."""
        if self._layout.nudge(across, down):
            self._answer()
        else:
            self._answer(
                f"No divider can be moved here. {key_for('enlarge')}, {key_for('alone')} or "
                f"{key_for('usual_room')} bring back a layout that has one"
            )

    def usual_layout(self) -> None:
        """Show all panels again, at their usual sizes."""
        self._layout.arrangement.set_alone(False)
        self._layout.arrangement.hidden = frozenset()
        self._layout.sizes.clear()
        self._answer("All panels, at their usual sizes")


def _listed(words: Sequence[str]) -> str:
    """`Candidates, KV cache and Time`."""
    return " and ".join(([", ".join(words[:-1])] if len(words) > 1 else []) + list(words[-1:]))


# ---- dividers that are dragged ------------------------------------------------------------------


class PanelArea(Container):
    """Moves dividers; a panel that is left nearly no room is hidden.

    Args:
        layout: Puts the panels in their places.
        dragged: Has everything shown again, while the button is pressed with the panels that letting go would hide.
        hide: Hides panels.
        id: Of the widget.
    """

    def __init__(
        self,
        layout: PanelLayout,
        dragged: Callable[[Collection[str]], None],
        hide: Callable[[Collection[str]], None],
        id: str | None = None,
    ) -> None:
        super().__init__(id=id)
        self._layout, self._dragged, self._hide = layout, dragged, hide
        self._grip: Grip | None = None
        """The divider under the pressed button."""
        self._sizes: dict[str, int] = {}
        """Those before it was moved: a panel that is shown again has its room back."""

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Take hold of the divider under the mouse."""
        self._grip = self._layout.grip(int(event.screen_x), int(event.screen_y))
        if self._grip is not None:
            self._sizes = dict(self._layout.sizes)
            self.capture_mouse()
            self.screen.clear_selection()  # the toolkit began one with the press
            event.stop()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Move the divider along."""
        x, y = int(event.screen_x), int(event.screen_y)
        if self._grip is not None:
            self._layout.drag(self._grip.divider, x, y)
            self._dragged(self._grip.squeezed(x, y))
            event.stop()

    def on_mouse_up(self, event: events.MouseUp) -> None:
        """Let go."""
        if self._grip is None:
            return
        squeezed = self._grip.squeezed(int(event.screen_x), int(event.screen_y))
        self._let_go()
        event.stop()
        if squeezed:
            self._layout.sizes = self._sizes
        self._hide(squeezed)

    def on_resize(self) -> None:
        """Divide the room anew; let go: the panels are not where they were when the divider was taken hold of."""
        self._layout.apply()
        if self._grip is not None:
            self._let_go()
            self._dragged(())  # nothing is about to be hidden any more

    def _let_go(self) -> None:
        self._grip = None
        self.release_mouse()
