"""The base of the full screens of tools: records, repainting once, the theme and the help."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, TypeVar

from textual import events
from textual.content import Content
from textual.widgets import Static

from engine.protocol import Record
from inspector.keys import key_for
from inspector.main.narration import CaptionLine, NarrationCard
from inspector.main.tool import Host
from inspector.session.requests import Job
from inspector.widgets.actions import Action, ActionTable, KeyLine, Needs
from inspector.widgets.overlay import Overlay

Result = TypeVar("Result")
REPLAY = ActionTable(
    "In a replay",
    (
        Action("step", "Next", "In a replay: show what came next, or pause.", lambda own: own.step_replay(), worth=10,
               hint=lambda own: "pause" if own.playing else "next"),
        Action("run", "Play", "In a replay: play on, or pause.", lambda own: own.run_replay(), worth=9,
               hint=lambda own: "" if own.playing else "play"),
        Action("faster", "Faster", "In a replay: play faster.", lambda own: own.pace_replay(1), worth=4,
               hint=lambda own: "pace" if own.playing else ""),
        Action("slower", "Slower", "In a replay: play slower.", lambda own: own.pace_replay(-1), worth=4,
               hint=lambda own: "pace" if own.playing else ""),
        Action("take_back", "Back", "In a replay: show what was there before.", lambda own: own.rewind_replay(),
               hint="before", worth=5),
    ),
    when=lambda own: own.recorded, priority=True, told=False,
)  # fmt: skip
"""Before a screen's own meaning of these keys, where what it shows was recorded."""


class ToolScreen(Overlay[Result]):
    """A screen over the main one.

    Args:
        host: The main screen.
        job: What it starts, which stops when it is left; None where it starts nothing.
    """

    TOOL: ClassVar[str]
    """Id of the tool that opens it: its help is this screen's."""
    MEASURES: ClassVar[str] = ""
    """The work that its keys start, at the beginning of a sentence; empty where they start none."""
    TELLING: ClassVar[tuple[type[Record], ...]] = ()
    """The records of that which change what is shown: in a replay space goes from one to the next."""

    def __init__(self, host: Host, job: Job | None = None) -> None:
        super().__init__()
        self.host, self.job = host, job
        self.said = ""
        """To the last key, in the place of the situation; printable."""
        self._stale = False

    def begin(self) -> None:
        """Take in what the engine says from now on."""
        self.host.controller.client.listeners.append(self.receive)
        self.call_after_refresh(self._show)

    def let_go(self) -> None:
        """Listen no more."""
        listeners = self.host.controller.client.listeners
        if self.receive in listeners:  # it may be left before it is there
            listeners.remove(self.receive)

    def on_screen_suspend(self) -> None:
        """The line of keys has those of what is on top."""
        self.changed()

    def on_screen_resume(self, event: events.ScreenResume) -> None:
        """Catch up with what happened under another screen."""
        self.changed()

    def on_resize(self, event: events.Resize) -> None:
        """As much as there is room for."""
        self.changed()

    def receive(self, record: Record) -> None:
        """Take in one record."""
        self.changed()

    def changed(self) -> None:
        """Have everything shown again: once, however often this is called before."""
        if not self._stale:
            self._stale = True
            self.call_next(self._show)

    def _show(self) -> None:
        self._stale = False
        if self.left:
            return
        self._narrate()
        self._tell()
        self.show()
        for keys in self.query(KeyLine):
            keys.show()

    def _narrate(self) -> None:
        """Show the card of whoever narrates. It is made with the first one, and kept as long as the screen is."""
        narrator, cards = self.host.narrator, self.query(NarrationCard)
        if cards:
            cards.first().tell(narrator.narration() if narrator is not None else None)
        elif narrator is not None:
            self.mount(NarrationCard())
            self.call_after_refresh(self.changed)

    def _tell(self) -> None:
        """Show what is told to an audience, above the status. The line is made with the first of that."""
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
        return self.app.size.height - sum(cards)

    def show(self) -> None:
        """Show everything, now."""

    def write(self, part: str, place: str | Content, failed: bool | None = None) -> None:
        """Write the line above the panels, and the status: the answer to the last key, or else the situation.

        Args:
            part: How the ids of both begin.
            place: Printable.
            failed: Whether the situation is a failure; None where that is the job's.
        """
        if failed is None:
            failed = self.job is not None and self.job.failure is not None
        self.query_one(f"#{part}-place", Static).update(Content(place) if isinstance(place, str) else place)
        status = self.query_one(f"#{part}-status", Static)
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
        """Whether what is shown was recorded: nothing can be started."""
        return bool(self.MEASURES) and self.host.controller.transport.recorded

    @property
    def needs_model(self) -> str:
        """The answer of a key that starts something in a replay."""
        return f"{self.MEASURES} needs a live model: esc, then {key_for('go_live')}"

    @property
    def playing(self) -> bool:
        """Whether the recording plays, or is to be followed."""
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
        """The keys of a replay come before its own, where it starts anything."""
        return (REPLAY, self.ACTIONS) if self.MEASURES else (self.ACTIONS,)

    def keeps(self, action: Action) -> bool:
        """Whether an action's key means here what it says, and nothing to whoever narrates."""
        narrator = self.host.narrator
        told = narrator.narration() if narrator is not None else None
        return told is None or action.names[0] not in told.keys

    def offers(self, action: Action) -> bool:
        """Offer nothing that would start something in a replay, and no key that the narrator takes."""
        return not (self.recorded and Needs.ENGINE in action.needs) and self.keeps(action)

    async def perform(self, action: Action) -> None:
        """Do something, and show what came of it; in a replay say what it needs."""
        if self.recorded and Needs.ENGINE in action.needs:
            self.say(self.needs_model)
            return
        self.said = ""
        await super().perform(action)
        self.changed()

    def leave(self) -> None:
        """Go back; what it started stops."""
        if self.job is not None:
            self.job.stop()
        self.dismiss(None)
