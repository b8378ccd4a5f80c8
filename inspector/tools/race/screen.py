"""The screen of the race: the same tokens with a KV cache and without one, side by side, as they are measured."""

from __future__ import annotations

from typing import ClassVar

from textual import getters
from textual.app import ComposeResult
from textual.containers import Container
from textual.widgets import Static

from engine.protocol import RaceStep, Record
from inspector.display import visible
from inspector.keys import key_for
from inspector.main.tool import Host
from inspector.main.tool_screen import ToolScreen
from inspector.tools.race.control import RaceControl
from inspector.tools.race.lanes import RaceLane, RaceTotals
from inspector.tools.race.report import progress
from inspector.tools.race.tool import RACE_SCREEN
from inspector.widgets.actions import ActionTable, KeyLine


class RaceScreen(ToolScreen[None]):
    """Races; the session and its cache stay as they are.

    Args:
        host: The main screen.
        control: Knows the engine and the state of the race.
    """

    TOOL: ClassVar[str] = "race"
    ACTIONS: ClassVar[ActionTable] = RACE_SCREEN
    MEASURES: ClassVar[str] = "A race"
    TELLING: ClassVar[tuple[type[Record], ...]] = (RaceStep,)
    AUTO_FOCUS = ""

    cached = getters.query_one("#race-cached", RaceLane)
    uncached = getters.query_one("#race-uncached", RaceLane)
    totals = getters.query_one("#race-totals", RaceTotals)

    def __init__(self, host: Host, control: RaceControl) -> None:
        super().__init__(host, control.job)
        self.control = control

    def compose(self) -> ComposeResult:
        yield Static(id="race-place")
        with Container(id="race-lanes"):
            yield RaceLane(True, id="race-cached")
            yield RaceLane(False, id="race-uncached")
        yield RaceTotals(id="race-totals")
        yield Static(id="race-status")
        yield KeyLine(id="race-keys")

    def on_mount(self) -> None:
        """Forget a race over another text."""
        self.control.enter()

    # ---- showing ----------------------------------------------------------------------------

    def show(self) -> None:
        """Show everything, now."""
        control = self.control
        for lane in (self.cached, self.uncached):
            lane.put(control.steps, control.first, control.last)
        self.totals.put(control.steps, control.opened.how if control.opened else "")
        self._write()

    def _write(self) -> None:
        """The lines around the lanes."""
        facts = self.host.controller.timeline.facts
        name = visible(facts.name) if facts else ""
        span = f"{self.control.first} to {self.control.last} tokens"
        what = "recorded" if self.recorded else "the same tokens with and without a KV cache"
        place = f"Race · {what} · {name} · {span}"
        self.write("race", place)

    def situation(self) -> str:
        """What is going on, and what to do about it."""
        control = self.control
        if self.recorded:
            return self._recorded()
        if control.job.failure is not None:
            return visible(f"{control.job.failure.message} {control.job.failure.hint}".strip())
        if not control.job.running:
            return self._idle()
        if control.progress is not None or not control.steps or control.opened is None:
            waiting = control.progress
            return (
                f"Getting ready: {visible(waiting.detail)} {waiting.done}/{waiting.total}"
                if waiting
                else "Getting ready"
            )
        return progress(control.opened, control.steps[-1])

    def _recorded(self) -> str:
        """How far the recorded race is at this place."""
        control = self.control
        if not control.steps:
            return f"No race was recorded up to here. {self.needs_model}"
        return f"Recorded, {control.tokens} of {control.last} tokens. {self.needs_model}"

    def _idle(self) -> str:
        control, go = self.control, key_for("race.go")
        if not control.steps:
            return f"Press {go} to race to {control.last} tokens, ← → for another length"
        if control.over:
            longer = f", → and {go} goes on to more" if control.last < control.lengths[-1] else ""
            return f"{control.tokens} tokens reached. Press {go} to race again{longer}"
        paused = f"Paused at {control.tokens} of {control.last} tokens"
        return f"{paused}. Press {go} to go on, {key_for('race.again')} to begin anew"

    @property
    def doing(self) -> str:
        """What the key that starts does now."""
        control = self.control
        return "pause" if control.job.running else "go on" if control.steps and not control.over else "start"

    # ---- keys -------------------------------------------------------------------------------

    def lengthen(self, by: int) -> None:
        """Race to another length."""
        if not self.control.job.running:
            self.control.lengthen(by)
