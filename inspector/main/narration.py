"""Narration beside the panels: a lesson's card, and the line that speaks to an audience.

The narrator is asked first about each key of the screens.
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
"""The hint on a card that is longer than its room."""


# ---- the words ----------------------------------------------------------------------------------


class Narration(Struct, frozen=True):
    """The contents of the card now."""

    title: str
    """The title of its frame; printable."""
    body: Content
    hints: tuple[Hint, ...]
    spotlight: str = ""
    """Panel that matters: its frame is bright and the others are dimmed; empty for none."""
    hidden: frozenset[str] = frozenset()
    """Parts that the panels conceal: see `Timeline.concealed`."""
    hidden_as: str = TO_PREDICT
    """Why, for their frames."""
    projected: bool = False
    """True if one panel and the card are all that is shown: a projector's font may then be large."""
    blank: bool = False
    """True if nothing is shown for a while."""
    clock: Callable[[], Content] | None = None
    """The time, for the frame; asked once a second."""
    situation: str = ""
    """The words of the status line: the keys that do something now; printable, empty for its own words."""
    keys: frozenset[str] = frozenset()
    """The keys that the narrator takes now, as Textual names them."""
    help: tuple[ActionTable, ...] = ()
    """The tables that the help begins with now."""


class Narrator(Protocol):
    """Tells something beside the panels."""

    def narration(self) -> Narration | None:
        """The contents of the card now; None for no card."""

    def takes(self, key: str) -> bool:
        """Do what a key means to the narrator; returns whether it means anything: then it does nothing else."""

    def refuses(self, action: Action) -> str:
        """The reason that an action of the main screen has to wait, with advice; printable, empty for none."""

    def leave(self) -> None:
        """End it: the session goes back to where it was."""


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
        """Have a timer ready for the time, and the hints know of each new height and of scrolling."""
        for height in ("virtual_size", "show_vertical_scrollbar", "scroll_y"):
            self.watch(self, height, self._height_changed, init=False)
        self._timer = self.set_interval(1.0, self._show_time, pause=True)

    def _height_changed(self) -> None:
        self.call_after_refresh(self._show_hints)  # by then the room has its new height, too

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
        if before is None or not before.body.is_same(narration.body):  # each has all panels laid out again
            self._body.update(narration.body)
            self.scroll_home(animate=False, immediate=True)
        self._show_hints()

    @property
    def overflows(self) -> bool:
        """True if it has more lines than a small screen has room for."""
        return self.display and self.max_scroll_y > 0

    def page(self, by: int) -> None:
        """Show the next of its lines, or those before."""
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
    """A few lines; where there is room on the main screen they stay, so that nothing jumps as captions come and go."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self._shown = ""

    def put(self, text: str, held: bool = False) -> None:
        """Show a text.

        Args:
            text: Printable; empty for none.
            held: Whether room is kept where there is no text.
        """
        self.set_class(held, "-held")
        self.set_class(bool(text), "-told")
        if text != self._shown:
            self._shown = text
            self.update(Content.assemble(("▌ ", "bold $primary"), text) if text else "")
