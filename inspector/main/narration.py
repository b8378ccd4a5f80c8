"""Narration beside the panels: a lesson's card, and the caption line for an audience.

Each key press goes to the narrator first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from inspector.state.timeline import TO_PREDICT
from inspector.widgets.actions import Action, ActionTable, Hint, line

MORE = Hint((Action("lesson.read_on"),), "more", 10)
"""The hint on a card with more lines than fit."""


# ---- the words ----------------------------------------------------------------------------------


class Narration(Struct, frozen=True):
    """The contents of the card now."""

    title: str
    """The title of its frame; printable."""
    body: Content
    hints: tuple[Hint, ...]
    spotlight: str = ""
    """Id of the panel to emphasize: its frame is bright and the others are dimmed; empty for none."""
    hidden: frozenset[str] = frozenset()
    """Parts that the panels conceal: see `Timeline.concealed`."""
    hidden_as: str = TO_PREDICT
    """The reason for that, shown in the frames of these panels."""
    projected: bool = False
    """True if only one panel and the card are shown, which leaves room for a projector's large font."""
    blank: bool = False
    """True if nothing is shown for a while."""
    clock: Callable[[], Content] | None = None
    """Returns the time for the card's frame; called once a second."""
    situation: str = ""
    """The text of the status line: the keys that do something now; printable, empty for the usual text."""
    keys: frozenset[str] = frozenset()
    """The keys that the narrator takes now, as Textual names them."""
    help: tuple[ActionTable, ...] = ()
    """The key tables that come first in the help now."""


class Narrator(Protocol):
    """Provides the contents of the card beside the panels."""

    def narration(self) -> Narration | None:
        """The contents of the card now; None for no card."""

    def takes(self, key: str) -> bool:
        """Handle a key; returns whether the narrator did, in which case the key does nothing else."""

    def refuses(self, action: Action) -> str:
        """The reason why an action of the main screen has to wait, with advice; printable, empty if it needn't."""

    def leave(self) -> None:
        """End the narration: the session returns to where it was."""


# ---- where it is shown --------------------------------------------------------------------------


class NarrationCard(VerticalScroll, can_focus=False):
    """The card, at the foot of whichever screen is on top."""

    def __init__(self) -> None:
        super().__init__(classes="narration")
        self._body = Static(markup=False)
        self._told: Narration | None = None
        self.display = False

    def compose(self) -> ComposeResult:
        yield self._body

    def on_mount(self) -> None:
        """Create the clock's timer, paused, and update the hints after each change of the height and each scroll."""
        for height in ("virtual_size", "show_vertical_scrollbar", "scroll_y"):
            self.watch(self, height, self._height_changed, init=False)
        self._timer = self.set_interval(1.0, self._show_time, pause=True)

    def _height_changed(self) -> None:
        self.call_after_refresh(self._show_hints)  # by then the viewport has its new height, too

    def _show_time(self) -> None:
        if (told := self._told) is not None:
            time = Content(" · ") + told.clock() if told.clock is not None else Content()
            self.border_title = Content(told.title) + time

    def tell(self, narration: Narration | None) -> None:
        """Show the narration; None hides the card."""
        before, self._told = self._told, narration
        if self.display != (narration is not None):
            self.display = narration is not None
        if narration is None:
            return
        if narration.clock is not None:
            self._timer.resume()
        else:
            self._timer.pause()
        self._show_time()
        if before is None or not before.body.is_same(narration.body):  # an update lays out all panels again
            self._body.update(narration.body)
            self.scroll_home(animate=False, immediate=True)
        self._show_hints()

    @property
    def overflows(self) -> bool:
        """True if it has more lines than a small screen has room for."""
        return self.display and self.max_scroll_y > 0

    def page(self, by: int) -> None:
        """Scroll by a number of pages; a negative one scrolls up."""
        self.scroll_relative(y=by * max(1, self.scrollable_content_region.height), animate=False)

    def _show_hints(self) -> None:
        hints = self._told.hints if self._told is not None else ()
        others = tuple(each for each in hints if MORE.actions[0].names[0] not in each.actions[0].names)
        # a presenter's key scrolls down to the last line only
        last = others != hints and self.scroll_offset.y >= self.max_scroll_y
        if self.overflows and not last:
            hints = (MORE, *others)
        self.border_subtitle = line(hints, max(10, self.app.size.width - 6))


class CaptionLine(Static):
    """The caption. A tall screen keeps its lines while there is none, so that nothing jumps."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self._shown = ""

    def put(self, text: str, held: bool = False) -> None:
        """Show a text.

        Args:
            text: Printable; empty for none.
            held: Whether its lines stay when there is no text.
        """
        self.set_class(held, "-held")
        self.set_class(bool(text), "-told")
        if text != self._shown:
            self._shown = text
            self.update(Content.assemble(("▌ ", "bold $primary"), text) if text else "")
