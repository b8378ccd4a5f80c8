"""The base of the full screens of tools: records, repainting once, the theme and the help."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, TypeVar

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from engine.protocol import Record
from inspector.display import truncate_words
from inspector.keys import TABS, key_for
from inspector.main.narration import CaptionLine, NarrationCard
from inspector.main.tool import Host
from inspector.session.requests import Job
from inspector.widgets.actions import Action, ActionTable, KeyLine, Needs
from inspector.widgets.overlay import Overlay

Result = TypeVar("Result")
AROUND = (2, 0, 2, 0)
"""Rows above and below its place that count for its size classes; as the toolkit has a margin."""
LEAST_ROWS = 9
"""Of the place of the answer from which on one of them is for the line above the panels."""
REPLAY = ActionTable(
    "In a replay",
    (
        Action("step", "Next", "In a replay: show what came next, or pause.", lambda own: own.step_replay(), worth=10,
               hint=lambda own: "pause" if own.playing else "next"),
        Action("run", "Play", "In a replay: play, or pause.", lambda own: own.run_replay(), worth=9,
               hint=lambda own: "" if own.playing else "play"),
        Action("faster", "Faster", "In a replay: play faster.", lambda own: own.pace_replay(1), worth=4,
               hint=lambda own: "pace" if own.playing else ""),
        Action("slower", "Slower", "In a replay: play slower.", lambda own: own.pace_replay(-1), worth=4,
               hint=lambda own: "pace" if own.playing else ""),
        Action("take_back", "Back", "In a replay: go back one step.", lambda own: own.rewind_replay(),
               hint="before", worth=5),
    ),
    when=lambda own: own.recorded, priority=True, told=False,
)  # fmt: skip
"""Before a screen's own meaning of these keys, where what it shows was recorded."""


def _elsewhere(id: str, hint: str = "", worth: int = 0, place: int = 0, leaves: bool = False) -> Action:
    """An action of the main screen that holds on a tool's own screen, too, which it may leave."""
    return Action(id, run=lambda own: own.leave_for(id) if leaves else own.host.press(id), hint=hint, worth=worth,
                  place=place, listed=False)  # fmt: skip


EVERYWHERE = ActionTable(
    "On the screen of every tool",
    (
        *(_elsewhere(f"tab_{digit}", hint="tabs", worth=2, place=90) for digit in TABS),
        *map(_elsewhere, ("step", "run", "take_back", "undo", "redo", "enlarge")),
        _elsewhere("prompt", leaves=True),
        _elsewhere("sampling", leaves=True),
    ),
    priority=True, told=False,
)  # fmt: skip
"""What holds everywhere, behind a screen's own meaning of these keys and of what is typed into a field of it."""
VIEWS = ActionTable(
    "From answer to answer",
    (_elsewhere("next_view", hint="next view", worth=6, place=89), _elsewhere("view_before")),
    priority=True, told=False,
)  # fmt: skip
"""The same, in a field, too: arrows go from field to field."""


class SituationLine(Static):
    """One line, cut between words."""

    def render(self) -> Content:
        return Content(truncate_words(str(super().render()), self.content_size.width))


class ToolScreen(Overlay[Result]):
    """A screen in the place of the answer: beside the text where there is room, or else in the place of all panels.

    The main screen below is seen around it, and takes the mouse there.

    Args:
        host: The main screen.
        job: What it starts, which stops when it is left; None where it starts nothing.
    """

    TOOL: ClassVar[str]
    """Id of the tool that opens it: its help is this screen's."""
    opener: str = ""
    """Id of the action of the main screen that opens it; empty for the first one of its tool."""
    HORIZONTAL_BREAKPOINTS: list[tuple[int, str]] | None = []  # noqa: RUF012 (as the toolkit declares them)
    VERTICAL_BREAKPOINTS: list[tuple[int, str]] | None = []  # noqa: RUF012
    """None: the classes are those of the answer's size, which the toolkit doesn't know."""
    MEASURES: ClassVar[str] = ""
    """The work that its keys start, at the beginning of a sentence; empty where they start none."""
    TELLING: ClassVar[tuple[type[Record], ...]] = ()
    """The records of that which change what is shown: in a replay space goes from one to the next."""
    OUTDATES: ClassVar[tuple[type[Record], ...]] = ()
    """The records after which the answer to the last key is no longer so."""

    def __init__(self, host: Host, job: Job | None = None) -> None:
        self.host, self.job = host, job
        self.area = host.area
        """Its place on the terminal, without the status and the line of keys, when everything was shown last."""
        super().__init__()
        self.update_classes(self._size_classes(self.area.grow(AROUND).size), update=False)
        self.said = ""
        """To the last key, in the place of the situation; printable."""
        self._stale = False
        self._narrated = False
        """True if somebody narrated, or told an audience something, since it was opened."""

    def compose(self) -> ComposeResult:
        with Vertical(id="answer"):
            yield Static(id="tool-place")
            yield from self.body()
        yield SituationLine(id="tool-status")
        yield KeyLine(id="tool-keys")

    def body(self) -> Iterable[Widget]:
        """The widgets of the answer."""
        return ()

    # ---- its place --------------------------------------------------------------------------

    def _take_place(self) -> None:
        """Go where the answer is."""
        self.area, size = self.host.area, self.app.size
        self.query_one("#answer").styles.margin = (
            self.area.y,
            max(0, size.width - self.area.right),
            max(0, size.height - 2 - self.area.bottom),
            self.area.x,
        )
        self.update_classes(self._size_classes(self.area.grow(AROUND).size), animate=False)

    def _forward_event(self, event: events.Event) -> None:
        """Take in an event of the terminal; what the mouse does beside the answer is for the main screen."""
        held = self.app.mouse_captured
        if isinstance(event, events.MouseEvent) and self.app.screen is self:
            beside = (
                not self.area.contains(event.screen_x, event.screen_y) and event.screen_y < self.area.bottom
            )
            if held.screen is not self if held is not None else beside:
                self.host.forward(event)
                return
        super()._forward_event(event)

    def begin(self) -> None:
        """Go where the answer is. What the engine says changes the main screen, and with that this one."""
        self._take_place()
        if self.OUTDATES:
            self.host.controller.client.listen(self._outdated, *self.OUTDATES)

    def let_go(self) -> None:
        """Listen no more."""
        if self.OUTDATES:
            self.host.controller.client.ignore(self._outdated)  # it may be left before it is there

    def _outdated(self, record: Record) -> None:
        self.said = ""

    @on(events.ScreenSuspend)  # the line of keys has those of what is on top
    @on(events.ScreenResume)
    @on(events.Resize)
    def changed(self) -> None:
        """Have everything shown again: once, however often this is called before; not before there is room for it."""
        if not self._stale:
            self._stale = True
            if self._settled:
                self.call_next(self._show)

    def _settle(self) -> None:
        """Show everything, and have that painted."""
        super()._settle()
        if self._stale:
            self._show()

    def _show(self) -> None:
        self._stale = False
        if self.left:
            return
        if self.host.area != self.area:
            self._take_place()
        if self._narrated or self.host.narrator is not None or self.host.caption:
            self._narrate()  # as most of the time nobody does
        self.show()
        for keys in self.query(KeyLine):
            keys.show()

    def _narrate(self) -> None:
        """Show the card of whoever narrates, and what is told to an audience, above the status. Both are made with the
        first of that, and kept as long as the screen is."""
        self._narrated = True
        narrator, cards = self.host.narrator, self.query(NarrationCard)
        if cards:
            told = narrator.narration() if narrator is not None else None
            self.set_class(told is not None and told.room > 0, "-projected")
            self.set_class(told is not None and told.blank, "-blank")
            cards.first().tell(told)
        elif narrator is not None:
            self.mount(NarrationCard())
            self.after_paint(self.changed)
        text, lines = self.host.caption, self.query(CaptionLine)
        if lines:
            lines.first().put(text)
        elif text and len(own := self.query_children("*").exclude(".narration")) > 1:
            line = CaptionLine(id="caption")
            line.put(text)
            self.mount(line, before=list(own)[-2])

    @property
    def room(self) -> int:
        """Rows that the card of whoever narrates leaves."""
        cards = (card.outer_size.height for card in self.query(NarrationCard) if card.display)
        return self.area.height + 2 - sum(cards)

    def show(self) -> None:
        """Show everything, now."""

    def write(self, place: str | Content = "", failed: bool | None = None) -> None:
        """Write the line above the panels, and the status: the answer to the last key, or else the situation.

        Args:
            place: Printable; empty for no such line.
            failed: Whether the situation is a failure; None where that is the job's.
        """
        if failed is None:
            failed = self.job is not None and self.job.failure is not None
        line = self.query_one("#tool-place", Static)
        line.display = bool(place) and self.area.height >= LEAST_ROWS
        width = self.area.width - 2
        line.update(Content(truncate_words(place, width)) if isinstance(place, str) else place)
        status = self.query_one("#tool-status", Static)
        status.update(Content(self.said or self.situation()))
        status.set_class(bool(self.said) or failed, "-answer")

    def situation(self) -> str:
        """The state of the work, and the keys that matter now; printable."""
        return ""

    def say(self, answer: str = "") -> None:
        """Answer a key, or take the answer back; printable."""
        self.said = answer
        self.changed()

    # ---- in a replay ------------------------------------------------------------------------

    @property
    def recorded(self) -> bool:
        """True if what is shown was recorded: nothing can be started."""
        return bool(self.MEASURES) and self.host.controller.transport.recorded

    @property
    def needs_model(self) -> str:
        """The answer of a key that starts something in a replay."""
        return f"{self.MEASURES} needs a live model: esc, then {key_for('go_live')}"

    @property
    def playing(self) -> bool:
        """True if the recording plays, or is to be followed."""
        return self.host.controller.transport.running

    def _move(self, answer: Callable[[], str]) -> None:
        """Move the recording on; at its end say what more would need."""
        playback = self.host.playback
        at_end = playback is not None and playback.player is not None and playback.player.at_end
        self.say(self.needs_model if at_end else answer())

    def step_replay(self) -> None:
        """Show what came next, or pause; at the end say what more would need."""
        self._move(lambda: self.host.controller.transport.step(self.TELLING))

    def run_replay(self) -> None:
        """Play on, or pause; at the end say what more would need."""
        self._move(self.host.controller.transport.run)

    def rewind_replay(self) -> None:
        """Show what was there before."""
        self.say(self.host.controller.transport.back(self.TELLING))

    def pace_replay(self, by: int) -> None:
        """Play faster, or slower."""
        self.say(self.host.controller.transport.change_pace(by))

    # ---- keys -------------------------------------------------------------------------------

    @property
    def tables(self) -> Sequence[ActionTable]:
        """The keys of a replay come before its own, where it starts anything; a field takes those of everywhere."""
        replay, everywhere = (REPLAY,) if self.MEASURES else (), () if self.typing else (EVERYWHERE,)
        return (*replay, self.ACTIONS, *everywhere, VIEWS)

    @property
    def typing(self) -> bool:
        """True if a field of it has the focus."""
        return self.focused is not None and self.focused.check_consume_key("x", "x")

    def keeps(self, action: Action) -> bool:
        """True if an action's key means here what it says, and nothing to whoever narrates."""
        narrator = self.host.narrator
        told = narrator.narration() if narrator is not None else None
        return told is None or action.names[0] not in told.keys

    def offers(self, action: Action) -> bool:
        """Offer nothing that would start something in a replay, and no key that the narrator takes."""
        if Needs.ENGINE in action.needs and self.recorded:
            return False
        return self.host.narrator is None or self.keeps(action)

    async def perform(self, action: Action) -> None:
        """Do something, and show what came of it; in a replay say what it needs."""
        if self.recorded and Needs.ENGINE in action.needs:
            self.say(self.needs_model)
            return
        self.said = ""
        await super().perform(action)
        self.changed()

    def goes_to(self, action: str) -> None:
        """Another answer is about to take the place of this one.

        Args:
            action: Id of the action that shows it.
        """

    def on_key(self, event: events.Key) -> None:
        """The keys of the open tab hold here, too, where they mean nothing else."""
        if self.typing or self.meaning(event.key) is not None:
            return
        if action := self.host.in_tab(event.key):
            event.stop()
            self.host.press(action)

    def leave_for(self, action: str) -> None:
        """Leave, and do what an action of the main screen does."""
        self.leave()
        self.host.press(action)

    def leave(self) -> None:
        """Go back; what it started stops."""
        if self.job is not None:
            self.job.stop()
        self.dismiss(None)
