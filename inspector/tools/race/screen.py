"""The screen of the race: the same tokens with a KV cache and without one, side by side, as they are measured."""

from __future__ import annotations

from typing import ClassVar

from textual import events, getters
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

from engine import records
from inspector.display import visible
from inspector.main.dialogs.help import HelpDialog
from inspector.tools.compare.screen import keys
from inspector.tools.race.control import FIRST, RaceControl
from inspector.tools.race.lanes import RaceLane, RaceTotals
from inspector.tools.race.report import progress

Hint = tuple[str, str, int]


class RaceScreen(Screen[None]):
    """Races; the session and its cache stay as they are.

    Args:
        control: Knows the engine and the race as it stands.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space,r,enter", "go", "Start", tooltip="Start, pause or go on."),
        Binding("left,minus", "lengthen(-1)", "Shorter", tooltip="Race to fewer tokens."),
        Binding("right,plus", "lengthen(1)", "Longer", tooltip="Race to more tokens."),
        Binding("n", "again", "Again", tooltip="Stand at the beginning again."),
        Binding("escape,z,q", "leave", "Back", tooltip="Go back; a race under way stops."),
        Binding("T", "theme", "Dark or light", tooltip="Switch between the dark and the light theme."),
        Binding("question_mark", "help", "Help", tooltip="Show the keys and what is shown."),
    ]
    AUTO_FOCUS = ""

    cached = getters.query_one("#race-cached", RaceLane)
    uncached = getters.query_one("#race-uncached", RaceLane)
    totals = getters.query_one("#race-totals", RaceTotals)

    def __init__(self, control: RaceControl) -> None:
        super().__init__()
        self.control = control
        self._stale = False

    def compose(self) -> ComposeResult:
        yield Static(id="race-place")
        with Container(id="race-lanes"):
            yield RaceLane(True, id="race-cached")
            yield RaceLane(False, id="race-uncached")
        yield RaceTotals(id="race-totals")
        yield Static(id="race-status")
        yield Static(id="race-keys")

    def on_mount(self) -> None:
        """Take in what the engine tells from now on."""
        self.control.enter()
        self.control.controller.listeners.append(self._receive)
        self.call_after_refresh(self.show)

    def on_unmount(self) -> None:
        """Listen no more."""
        self.control.controller.listeners.remove(self._receive)

    def on_resize(self, event: events.Resize) -> None:
        """As much as there is room for."""
        self.changed()

    # ---- showing ----------------------------------------------------------------------------

    def _receive(self, record: records.Record) -> None:
        self.control.receive(record)
        self.changed()

    def changed(self) -> None:
        """Have everything shown anew: once, however often this is called before."""
        if not self._stale:
            self._stale = True
            self.call_next(self.show)

    def show(self) -> None:
        """Show everything anew, now."""
        self._stale = False
        if not self.is_attached:
            return
        control = self.control
        first = control.opened.first if control.opened else FIRST
        for lane in (self.cached, self.uncached):
            lane.put(control.steps, first, control.last)
        self.totals.put(control.steps, control.opened.how if control.opened else "")
        self._write(first)

    def _write(self, first: int) -> None:
        """The lines around the lanes."""
        facts = self.control.controller.timeline.facts
        name = visible(facts.name) if facts else ""
        place = f"Race · the same tokens with and without a KV cache · {name} · {first} to {self.control.last} tokens"
        self.query_one("#race-place", Static).update(Content(place))
        status = self.query_one("#race-status", Static)
        status.update(Content(self.situation()))
        status.set_class(self.control.failure is not None, "-answer")
        self.query_one("#race-keys", Static).update(keys(self.size.width - 2, self._hints()))

    def situation(self) -> str:
        """What is going on, and what to do about it."""
        control = self.control
        if control.failure is not None:
            return visible(f"{control.failure.message} {control.failure.hint}".strip())
        if control.command is None:
            return self._idle()
        if control.waiting is not None or not control.steps or control.opened is None:
            waiting = control.waiting
            return (
                f"Getting ready: {visible(waiting.detail)} {waiting.done}/{waiting.total}"
                if waiting
                else "Getting ready"
            )
        return progress(control.opened, control.steps[-1])

    def _idle(self) -> str:
        control = self.control
        if not control.steps:
            return f"Press space to race to {control.last} tokens, ← → for another length"
        if control.over:
            longer = ", → and space goes on to more" if control.last < control.lengths[-1] else ""
            return f"{control.tokens} tokens reached. Press space to race again{longer}"
        return f"Paused at {control.tokens} of {control.last} tokens. Press space to go on, n to begin anew"

    def _hints(self) -> tuple[Hint, ...]:
        running, steps = self.control.command is not None, bool(self.control.steps)
        doing = "pause" if running else "go on" if steps and not self.control.over else "start"
        again: tuple[Hint, ...] = (("n", "anew", 4),) if steps and not running else ()
        length: tuple[Hint, ...] = () if running else (("←→", "length", 6),)
        return (("space", doing, 9), *length, *again, ("T", "theme", 1), ("?", "help", 2), ("esc", "back", 8))

    # ---- keys -------------------------------------------------------------------------------

    def action_go(self) -> None:
        """Start, pause or go on."""
        self.control.toggle()
        self.changed()

    def action_lengthen(self, by: int) -> None:
        """Race to another length."""
        if self.control.command is None:
            self.control.lengthen(by)
        self.changed()

    def action_again(self) -> None:
        """Stand at the beginning again."""
        self.control.forget()
        self.changed()

    def action_leave(self) -> None:
        """Go back; what runs stops."""
        self.control.pause()
        self.dismiss(None)

    def action_theme(self) -> None:
        """Switch between dark and light."""
        self.app.theme = "textual-light" if self.app.current_theme.dark else "textual-dark"

    def action_help(self) -> None:
        """Show the help."""
        self.app.push_screen(HelpDialog())
