"""The base of all views: their place, their keys, and the keys of a replay."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from engine.protocol import Command, Record
from inspector.display import truncate_words, visible
from inspector.keys import TABS, key_for
from inspector.main.tool import OfferedHeat
from inspector.session.requests import Job
from inspector.state.timeline import Timeline
from inspector.widgets.actions import Action, ActionTable, Keyed, KeyLine, Needs
from inspector.widgets.canvas import Canvas, Row, centred

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen
    from inspector.main.tool import Tool

AROUND = (2, 0, 2, 0)
"""Margin that is added to a view for its size classes: two rows above and below, for header, tabs, status and keys."""
LEAST_ROWS = 9
"""Minimum rows of a view with a line above its panels."""
REPLAY = ActionTable(
    "In a replay",
    (
        Action("step", "Next", "In a replay: show what came next, or pause.", lambda own: own.step_replay(), worth=10,
               hint=lambda own: "pause" if own.playing else "next"),
        Action("run", "Play", "In a replay: play, or pause.", worth=9, hint=lambda own: "" if own.playing else "play",
               run=lambda own: own.move_replay(own.controller.transport.run)),
        Action("faster", "Faster", "In a replay: play faster.", worth=4, hint=lambda own: "pace" if own.playing else "",
               run=lambda own: own.say(own.controller.transport.change_pace(1))),
        Action("slower", "Slower", "In a replay: play slower.", worth=4, hint=lambda own: "pace" if own.playing else "",
               run=lambda own: own.say(own.controller.transport.change_pace(-1))),
        Action("take_back", "Back", "In a replay: go back one step.", hint="before", worth=5,
               run=lambda own: own.say(own.controller.transport.back(own.TELLING))),
    ),
    when=lambda own: own.recorded, priority=True, told=False,
)  # fmt: skip
"""Keys of a view that shows a recording; they come before the view's own."""


def _elsewhere(
    id: str, hint: str | Callable[[Any], str] = "", worth: int = 0, place: int = 0, leaves: bool = False
) -> Action:
    """An action of the main screen that works in a view, too, and may leave it."""
    return Action(id, run=lambda own: own.leave_for(id) if leaves else own.host.press(id), hint=hint, worth=worth,
                  place=place, listed=False)  # fmt: skip


LAYOUT = ("alone", "left_narrower", "left_wider", "divider_up", "divider_down", "usual_room")
EVERYWHERE = ActionTable(
    "In every view",
    (
        *(_elsewhere(f"tab_{digit}", hint="tabs", worth=2, place=90) for digit in TABS),
        *map(_elsewhere, ("step", "run", "take_back", "undo", "redo", "enlarge", "quit", *LAYOUT)),
        _elsewhere("prompt", leaves=True),
        _elsewhere("sampling", leaves=True),
    ),
    priority=True, told=False,
)  # fmt: skip
"""Keys of every view, after the view's own; not while the user types into a field."""
VIEWS = ActionTable(
    "From answer to answer",
    (_elsewhere("next_view", hint=lambda own: own.host.turn_word, worth=6, place=89),
     *map(_elsewhere, ("view_before", "save_as", "sessions"))),
    priority=True, told=False,
)  # fmt: skip
"""Keys of every view that also work in a field, since they type nothing there."""


def neighbor(values: Sequence[int], value: int, by: int) -> int:
    """The value some places after a given one; the last or first value if there are fewer.

    Args:
        values: All values.
        value: One of them.
        by: Number of places; negative to go back.
    """
    return values[max(0, min(len(values) - 1, values.index(value) + by))]


class View(Vertical, Keyed):
    """A view: a widget that covers the answer, or all panels if there is no room beside the text.

    It is created when it is first opened, and kept with the user's choices for the next time.

    Args:
        host: The main screen.
    """

    TOOL: ClassVar[str]
    """Id of its tool."""
    ENTRY: ClassVar[Tool]
    """The tool of a plug-in's view; the other tools are in `inspector.views`."""
    DIALOGS: ClassVar[tuple[ActionTable, ...]] = ()
    """The keys of its dialogs, for the help."""
    AUTO_FOCUS: ClassVar[str] = ""
    """Selector of the widget that gets the focus first; empty for none."""
    opener: str = ""
    """Id of the action that opened it."""
    MEASURES: ClassVar[str] = ""
    """Name of the work that its keys start, as the beginning of a sentence; empty if they start none."""
    STARTS: ClassVar[tuple[type[Command], ...]] = ()
    """The commands of that work, which are stopped when the view is left."""
    TELLING: ClassVar[tuple[type[Record], ...]] = ()
    """The records of that work that change the view: in a replay, space goes from one to the next."""
    PAUSES: ClassVar[bool] = True
    """True if a run pauses when it is opened."""
    WHOLE: ClassVar[bool] = False
    """True if it covers all panels, because it isn't about the selected token."""
    OUTDATES: ClassVar[tuple[type[Record], ...]] = ()
    """The records that clear the answer to the last key."""

    def __init__(self, host: MainScreen) -> None:
        super().__init__(classes="view")
        self.host, self.controller = host, host.controller
        self.job = Job(host.controller.client, *self.STARTS)
        self.area = host.area
        """Its region on the terminal."""
        self.said = ""
        """The answer to the last key, shown instead of the situation; printable."""
        self.is_open = False
        self._stale = False
        self.fit(self.area.grow(AROUND).size)

    @property
    def timeline(self) -> Timeline:
        """The timeline on show."""
        return self.controller.timeline

    @property
    def model_name(self) -> str:
        """The name of the model; printable, empty for none."""
        facts = self.timeline.facts
        return visible(facts.name) if facts is not None else ""

    def compose(self) -> ComposeResult:
        yield Static(id="tool-place")
        yield from self.body()

    def body(self) -> Iterable[Widget]:
        """The widgets of the answer."""
        return ()

    def on_mount(self) -> None:
        self.activate()

    def activate(self) -> None:
        """Start the view: from now on it takes keys, and each change of the main screen shows it again."""
        if self.left or self.takes_keys:
            return
        self.said = ""
        try:
            self.begin()
        except Exception as error:
            self.raised(error)
        if self.left:
            return
        if self.OUTDATES:
            self.controller.client.listen(self._outdated, *self.OUTDATES)
        self.takes_keys = True
        self.take_focus()
        self._show()

    def refusal(self) -> str:
        """Why it can't be opened now, for the status line; empty if it can."""
        return ""

    def begin(self) -> None:
        """Prepare to be shown: called each time it is opened, once its widgets are there."""

    def deactivate(self) -> None:
        """Stop listening and taking keys; called once each time it is closed."""
        began, self.is_open, self.takes_keys = self.takes_keys, False, False
        if began:  # or it was closed before its widgets were there
            if self.OUTDATES:
                self.controller.client.ignore(self._outdated)
            self.let_go()

    def on_unmount(self) -> None:
        """Deactivate it if it is still open."""
        if self.is_open:
            self.deactivate()

    # ---- methods that are called while it is closed, too --------------------------------------

    def heat_of_text(self) -> OfferedHeat | None:
        """Token shares that can color the text; None without any. Called each time the text is colored by them."""
        return None

    def point(self, *place: int) -> None:
        """Choose what is shown: a layer, or a layer and a head, counted from 1; a strength; a step."""

    def _outdated(self, record: Record) -> None:
        self.said = ""

    def raised(self, error: Exception) -> None:
        """Close a plug-in's view that raised an error, with a notice; reraise the error of a built-in view."""
        if not hasattr(self, "ENTRY"):
            raise error
        self.host.give_up(self, error)

    @property
    def left(self) -> bool:
        """True if it is closed, or the program ends: its widgets must not be used."""
        return not (self.is_open and self.is_attached)

    @property
    def focused(self) -> Widget | None:
        """Its widget that has the focus."""
        focused = self.screen.focused
        return focused if focused is not None and self in focused.ancestors_with_self else None

    def take_focus(self) -> None:
        """Take the focus back if it is elsewhere, such as in a panel that was clicked beside the view."""
        if self.takes_keys and not self.left and self.focused is None:
            widget = self.query_one(self.AUTO_FOCUS) if self.AUTO_FOCUS else None
            self.screen.set_focus(widget, scroll_visible=False)

    def dismiss(self) -> None:
        """Close it, if it is open."""
        if self.is_open:
            self.deactivate()
            self.host.close_view(self)
            self.host.answer(self.waiting())

    def waiting(self) -> str:
        """A sentence about work that waits when it is left, with the key that continues it; empty for none."""
        return ""

    @on(events.Resize)
    def changed(self) -> None:
        """Schedule a redraw; several calls schedule one."""
        if not self._stale and self.takes_keys:
            self._stale = True
            self.call_next(self._show)

    def _show(self) -> None:
        self._stale = False
        if self.left:
            return
        if self.host.area != self.area:
            self.area = self.host.area
            self.fit(self.area.grow(AROUND).size)
        try:
            self.show()
        except Exception as error:
            self.raised(error)
            return
        for line in self.host.query(KeyLine):  # none when the program ends: it is removed before a view
            line.show()

    @property
    def room(self) -> int:
        """Rows of the view, the status line and the line of keys."""
        return self.area.height + 2

    def show(self) -> None:
        """Show everything, now."""

    def write(self, place: str | Content = "", failed: bool | None = None) -> None:
        """Write the line above the panels, and the status: the answer to the last key, or else the situation.

        Args:
            place: Text of the line above the panels; printable, empty for no line.
            failed: Whether the situation is a failure; None for whether the work failed.
        """
        if failed is None:
            failed = self.job.failure is not None
        line = self.query_one("#tool-place", Static)
        line.display = bool(place) and self.area.height >= LEAST_ROWS
        width = self.area.width - 2
        line.update(Content(truncate_words(place, width)) if isinstance(place, str) else place)
        self.host.status.tell(self.said or self.situation(), bool(self.said) or failed)

    def situation(self) -> str:
        """The state of the work, and the keys that matter now; printable."""
        return ""

    def empty(self, on: Canvas, width: int, height: int, about: str, *more: str) -> list[Row]:
        """The rows of a view that has nothing to show yet: what it shows, and the key that starts it.

        Args:
            on: The canvas with the inks.
            width: Cells of a row.
            height: Rows.
            about: What it shows, in one sentence.
            more: Further sentences.
        """
        muted, start = on.ink("muted"), (self.situation(), on.ink("strong"))
        texts = [(about, on.rich_style), *((each, muted) for each in ("", *more)), ("", muted), start]
        return centred(texts, width, height)

    def say(self, answer: str = "") -> None:
        """Answer a key, or clear the answer; printable."""
        self.said = answer
        self.changed()

    # ---- in a replay ------------------------------------------------------------------------

    @property
    def recorded(self) -> bool:
        """True if it starts work, but a recording is shown, in which it can't."""
        return bool(self.MEASURES) and self.controller.transport.recorded

    @property
    def needs_model(self) -> str:
        """The answer of a key that starts something in a replay."""
        return f"{self.MEASURES} needs a live model: esc, then {key_for('go_live')}"

    @property
    def playing(self) -> bool:
        """True if the recording plays."""
        return self.controller.transport.running

    def move_replay(self, answer: Callable[[], str]) -> None:
        """Advance the recording; at its end, say that the work needs a live model."""
        playback = self.host.playback
        at_end = playback is not None and playback.player is not None and playback.player.at_end
        self.say(self.needs_model if at_end else answer())

    def step_replay(self) -> None:
        """Show the next recorded step of the work, or pause; at the end, say that the work needs a live model."""
        self.move_replay(lambda: self.controller.transport.step(self.TELLING))

    # ---- keys -------------------------------------------------------------------------------

    @property
    def tables(self) -> Sequence[ActionTable]:
        """The keys of a replay, if the view starts work, then its own, then those of every view (`EVERYWHERE` only
        while no field has the focus)."""
        replay, everywhere = (REPLAY,) if self.MEASURES else (), () if self.typing else (EVERYWHERE,)
        return (*replay, self.ACTIONS, *everywhere, VIEWS)

    @property
    def typing(self) -> bool:
        """True if a field of it has the focus."""
        return self.focused is not None and self.focused.check_consume_key("x", "x")

    def takes_first(self, key: str) -> bool:
        """True if the action of a key has priority over the widget that has the focus."""
        return next((first for _, first in self.meanings(key)), True)

    def keeps(self, action: Action) -> bool:
        """True if no narrator takes an action's key."""
        narrator = self.host.narrator
        told = narrator.narration() if narrator is not None else None
        return told is None or action.names[0] not in told.keys

    def offers(self, action: Action) -> bool:
        """False for an action that starts something in a replay, and for a key that the narrator takes."""
        if Needs.ENGINE in action.needs and self.recorded:
            return False
        return self.host.narrator is None or self.keeps(action)

    async def perform(self, action: Action) -> None:
        """Do an action, and show its result; in a replay, say if it needs a live model."""
        if self.recorded and Needs.ENGINE in action.needs:
            self.say(self.needs_model)
            return
        self.said = ""
        try:
            if action.run is not None and (done := action.run(self)) is not None:
                await done
        except Exception as error:
            self.raised(error)
        self.changed()

    def goes_to(self, action: str) -> None:
        """Called before another answer replaces this view.

        Args:
            action: Id of the action that shows it.
        """

    def leave_for(self, action: str) -> None:
        """Leave, and do what an action of the main screen does."""
        self.leave()
        self.host.press(action)

    def back(self) -> None:
        """Go back: from a page of another view to that view, or else leave."""
        page_of = self.host.table.on_row(self.opener)
        if page_of and page_of != self.opener and self.host.table[page_of].opens:
            self.host.press(page_of)
        else:
            self.leave()

    def leave(self) -> None:
        """Close it, and stop the work that it started."""
        self.job.stop()
        self.dismiss()
