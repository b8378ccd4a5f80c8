"""The screen of a batch: a lane for each prompt, stepped together."""

from __future__ import annotations

from typing import ClassVar

from textual import getters
from textual.app import ComposeResult
from textual.containers import Container
from textual.widgets import Static

from engine.protocol import BatchCompared, BatchEnded, BatchStep, LanesPrefilled, LaneStarted, Record
from inspector.display import visible
from inspector.keys import key_for
from inspector.main.tool import Host
from inspector.main.tool_screen import ToolScreen
from inspector.state.batch import BatchSoFar, LaneSoFar
from inspector.tools.batch.control import BatchControl
from inspector.tools.batch.detail import BatchFigures, LaneDetail
from inspector.tools.batch.dialog import BatchDialog, TypedPrompts
from inspector.tools.batch.lanes import LaneList
from inspector.tools.batch.tool import BATCH_SCREEN
from inspector.widgets.actions import ActionTable, KeyLine

EXAMPLES = ("The dog was", "Tom and his mom went to the park. They saw a")
"""After the session's own prompt, until a person types others."""
REPLACED = "Draws took the place of this batch"
LOW = 20
"""Rows below which one panel is shown at a time."""


class BatchScreen(ToolScreen[int]):
    """Steps a batch; returns the number of the lane that the session is to go to, None to stay.

    Args:
        host: The main screen.
        control: Knows the engine and the batch.
    """

    TOOL: ClassVar[str] = "batch"
    ACTIONS: ClassVar[ActionTable] = BATCH_SCREEN
    MEASURES: ClassVar[str] = "A batch"
    TELLING: ClassVar[tuple[type[Record], ...]] = (BatchStep, LanesPrefilled, LaneStarted, BatchCompared)
    AUTO_FOCUS = ""

    lanes = getters.query_one("#batch-lanes", LaneList)
    detail = getters.query_one("#batch-lane", LaneDetail)
    figures = getters.query_one("#batch-all", BatchFigures)

    def __init__(self, host: Host, control: BatchControl) -> None:
        super().__init__(host, control.job)
        self.control = control
        self.place = 0
        self._view = 0
        self._typed = ""

    def compose(self) -> ComposeResult:
        yield Static(id="batch-place")
        yield LaneList(id="batch-lanes")
        with Container(id="batch-below"):
            yield LaneDetail(id="batch-lane")
            yield BatchFigures(id="batch-all")
        yield Static(id="batch-status")
        yield KeyLine(id="batch-keys")

    @property
    def current(self) -> BatchSoFar | None:
        """The one that is shown."""
        return self.control.batch

    @property
    def lane(self) -> LaneSoFar | None:
        """The highlighted one."""
        lanes = self.current.lanes if self.current is not None else []
        return lanes[min(self.place, len(lanes) - 1)] if lanes else None

    # ---- showing ----------------------------------------------------------------------------

    def show(self) -> None:
        """Show everything, now."""
        if not self.query("#batch-keys"):
            return
        batch, lane = self.current, self.lane
        self.place = lane.number if lane is not None else 0
        self._arrange()
        advice = (
            self.needs_model
            if self.recorded
            else f"Press {key_for('batch.new')} to give prompts, one a line."
        )
        self.lanes.put(batch, self.place, advice)
        self.detail.put(lane)
        self.figures.put(batch)
        self._write()

    def receive(self, record: Record) -> None:
        """Take in one record; what was said of a batch under way is no longer so."""
        if isinstance(record, BatchEnded):
            self.said = ""
        self.changed()

    def _arrange(self) -> None:
        """Where there is little room, one panel at a time."""
        views = (self.lanes, self.detail, self.figures)
        shown = views[self._view % 3] if self.low else None
        for panel in views:
            panel.display = shown in (None, panel)
        self.query_one("#batch-below").display = shown is not self.lanes

    def _write(self) -> None:
        """The lines around the panels."""
        facts, batch = self.host.controller.timeline.facts, self.current
        name = visible(facts.name) if facts else ""
        step = f"step {batch.steps}" if batch is not None else ""
        parts = ("Batch", "recorded" if self.recorded else "", step, self._kind(), name)
        self.write("batch", " · ".join(filter(None, parts)))

    def _kind(self) -> str:
        """How lanes share the rows."""
        batch = self.current
        if batch is not None and batch.opened.node is not None:
            return f"draws of one prompt, {batch.opened.size} at once"
        size, static = self.control.size, self.control.static
        if batch is not None:
            size, static = batch.opened.size, batch.opened.static
        return f"{'static' if static else 'continuous'}, {size} at once"

    def situation(self) -> str:
        """What is going on, and what to do about it."""
        job, batch = self.control.job, self.current
        if self.recorded:
            return f"Recorded, step {batch.steps}. {self.needs_model}" if batch else self.needs_model
        if job.failure is not None:
            return visible(f"{job.failure.message} {job.failure.hint}".strip())
        if job.progress is not None:
            return f"{visible(job.progress.detail)}, {job.progress.done} of {job.progress.total}"
        if job.running:
            return "The lanes run" if batch is not None and batch.live else "The prompts go through the model"
        if batch is None:
            new, static = key_for("batch.new"), key_for("batch.static")
            return f"Press {new} to give prompts, {static} for static, ← → for lanes at once"
        if batch.replaced:
            new, opens = key_for("batch.new"), key_for("batch.open")
            return f"{REPLACED}. {new} begins another batch, {opens} opens this lane"
        if batch.over:
            alone = "" if batch.compared else f"{key_for('batch.alone')} runs each prompt alone, "
            add, new = key_for("batch.add"), key_for("batch.new")
            return f"All lanes have ended. {alone}{add} adds prompts, {new} begins another batch"
        step, run = key_for("batch.step"), key_for("batch.run")
        return f"{len(batch.live)} lanes go on. Press {step} for one step of all, {run} to run"

    @property
    def low(self) -> bool:
        """Whether there is room for one panel at a time."""
        return self.room < LOW

    # ---- keys -------------------------------------------------------------------------------

    def take_step(self) -> None:
        """Let every lane grow by a token, or pause."""
        self.control.step()
        self._ask_first()

    def run_lanes(self) -> None:
        """Run to the end, or pause."""
        self.control.run()
        self._ask_first()

    def _ask_first(self) -> None:
        if not self._replaced() and self.current is None:
            self.say(f"Press {key_for('batch.new')} to give prompts first")

    def _replaced(self) -> bool:
        """Say so where nothing can be done with the batch any more; returns whether that is the case."""
        replaced = self.current is not None and self.current.replaced
        if replaced:
            self.say(f"{REPLACED}. Press {key_for('batch.new')} to begin another")
        return replaced

    def highlight(self, by: int) -> None:
        """Highlight another lane."""
        if self.current is not None:
            self.place = max(0, min(len(self.current.lanes) - 1, self.place + by))

    def turn(self) -> None:
        """Show the next panel, where one is shown at a time."""
        self._view += 1

    def begin_another(self) -> None:
        """Ask for the prompts of another batch."""
        own = self.host.controller.setup.prompt.text
        self._ask(self._typed or "\n".join([" ".join(own.split()) or EXAMPLES[0], *EXAMPLES]), begins=True)

    def add(self) -> None:
        """Ask for prompts to add, or for those of a batch, where there is none to add to."""
        if self.current is None or self.current.replaced:
            self.begin_another()
        else:
            self._ask("", begins=False)

    def _ask(self, text: str, begins: bool) -> None:
        own = self.host.controller.setup.prompt.chat
        how = "Each goes through the chat template" if own else "Each is raw text"
        kind = "static" if self.control.static else "continuous"
        at_once = f", {self.control.size} lanes at once, {kind}" if begins else ""
        self.app.push_screen(
            BatchDialog(text, self.control.lane_prompts, begins, f"{how}{at_once}."),
            lambda typed: self._asked(typed, begins),
        )

    def _asked(self, typed: TypedPrompts | None, begins: bool) -> None:
        if typed is None:
            return
        if begins:
            self._typed = typed.text
        if typed.submitted:
            self.place = 0 if begins else self.place
            lanes = self.control.lane_prompts(typed.prompts)
            self.control.begin(lanes) if begins else self.control.add(lanes)
        self.say()

    def take_out(self) -> None:
        """Take the highlighted lane out."""
        lane = self.lane
        if lane is None or lane.ended is not None:
            self.say(
                "This lane has ended. Highlight one that goes on with ↑ ↓" if lane else "There is no lane yet"
            )
        elif not self._replaced():
            self.control.remove(lane.number)

    def compare(self) -> None:
        """Run each prompt alone, or stop that."""
        if self._replaced():
            return
        if self.current is None or not self.current.over:
            self.say(f"Run the batch to its end first: {key_for('batch.run')}")
        else:
            self.control.compare()

    def change_kind(self) -> None:
        """Have the next batch keep rows until all lanes have ended, or give them on."""
        self.control.static = not self.control.static
        if self.current is not None:
            kind = "static: rows stay until all lanes have ended" if self.control.static else "continuous"
            self.say(f"The next batch is {kind}. Press {key_for('batch.new')} for it")

    def change_size(self, by: int) -> None:
        """Have the next batch run more lanes at once, or fewer."""
        self.control.resize(by)
        if self.current is not None:
            self.say(f"The next batch runs {self.control.size} at once. Press {key_for('batch.new')} for it")

    def open_lane(self) -> None:
        """Open the highlighted lane in the session."""
        if (lane := self.lane) is None:
            self.begin_another()
        elif not lane.tokens:
            self.say(f"This lane has no token yet. Press {key_for('batch.step')} for one step of all")
        else:
            self.control.job.stop()
            self.dismiss(lane.number)
