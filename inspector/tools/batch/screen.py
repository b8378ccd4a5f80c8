"""The screen of a batch: a lane for each prompt, stepped together."""

from __future__ import annotations

from typing import ClassVar

from textual import getters
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.content import Content
from textual.widgets import Static

from engine.records import BatchCompared, BatchEnded, BatchStep, LanesPrefilled, LaneStarted, Record
from inspector.display import visible
from inspector.main.tool import Host
from inspector.main.tool_screen import ToolScreen
from inspector.state.batch import BatchSoFar, LaneSoFar
from inspector.tools.batch.control import BatchControl
from inspector.tools.batch.detail import BatchFigures, LaneDetail
from inspector.tools.batch.dialog import BatchDialog, TypedPrompts
from inspector.tools.batch.lanes import LaneList
from inspector.widgets.key_hints import KeyHint

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
    KEYS: ClassVar[str] = "#batch-keys"
    MEASURES: ClassVar[str] = "A batch"
    TELLING: ClassVar[tuple[type[Record], ...]] = (BatchStep, LanesPrefilled, LaneStarted, BatchCompared)
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "step", "Step", tooltip="Let every lane grow by a token; while they run, pause."),
        Binding("r", "run", "Run", tooltip="Run until all lanes have ended; again to pause."),
        Binding("up", "highlight(-1)", "Lane above", tooltip="Highlight the lane above."),
        Binding("down", "highlight(1)", "Lane below", tooltip="Highlight the lane below."),
        Binding(
            "enter", "go", "Open", tooltip="Open the highlighted lane in the session, with all its panels."
        ),
        Binding("a", "add", "Add", tooltip="Add prompts while the others go on."),
        Binding("n", "new", "New batch", tooltip="Begin another batch."),
        Binding("x", "remove", "Take out", tooltip="Take the highlighted lane out."),
        Binding("v", "compare", "Alone", tooltip="Run each prompt alone: equal ids, and the time of both."),
        Binding(
            "s",
            "static",
            "Static",
            tooltip="The next batch: rows stay until all have ended, or are given on.",
        ),
        Binding("left", "resize(-1)", "Fewer", tooltip="The next batch: fewer lanes at once."),
        Binding("right", "resize(1)", "More", tooltip="The next batch: more lanes at once."),
        Binding("tab", "turn", "Next panel", tooltip="Where there is room for one panel, show another."),
        Binding("escape,Z,q", "leave", "Back", tooltip="Go back; the batch pauses."),
    ]
    AUTO_FOCUS = ""

    lanes = getters.query_one("#batch-lanes", LaneList)
    detail = getters.query_one("#batch-lane", LaneDetail)
    figures = getters.query_one("#batch-all", BatchFigures)

    def __init__(self, host: Host, control: BatchControl) -> None:
        super().__init__(host)
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
        yield Static(id="batch-keys")

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
        advice = self.needs_model if self.recorded else "Press n to give prompts, one a line."
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
        low = self.room < LOW
        views = (self.lanes, self.detail, self.figures)
        shown = views[self._view % 3] if low else None
        for panel in views:
            panel.display = shown in (None, panel)
        self.query_one("#batch-below").display = shown is not self.lanes

    def _write(self) -> None:
        """The lines around the panels."""
        facts, batch = self.host.controller.timeline.facts, self.current
        name = visible(facts.name) if facts else ""
        step = f"step {batch.steps}" if batch is not None else ""
        parts = ("Batch", "recorded" if self.recorded else "", step, self._kind(), name)
        self.query_one("#batch-place", Static).update(Content(" · ".join(filter(None, parts))))
        status = self.query_one("#batch-status", Static)
        status.update(Content(self.said or self.situation()))
        status.set_class(bool(self.said) or self.control.job.failure is not None, "-answer")
        self.show_keys(self._hints())

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
            return "Press n to give prompts, s for static, ← → for lanes at once"
        if batch.replaced:
            return f"{REPLACED}. n begins another batch, ⏎ opens this lane"
        if batch.over:
            alone = "" if batch.compared else "v runs each prompt alone, "
            return f"All lanes have ended. {alone}a adds prompts, n begins another batch"
        return f"{len(batch.live)} lanes go on. Press space for one step of all, r to run"

    def _hints(self) -> tuple[KeyHint, ...]:
        turn: tuple[KeyHint, ...] = (("⇥", "panel", 8),) if self.room < LOW else ()
        last: tuple[KeyHint, ...] = (*turn, ("T", "theme", 1), ("?", "help", 2), ("esc", "back", 9))
        if self.recorded:
            return (*self.replay_keys(), *last)
        batch = self.current
        if batch is None:
            return (("n", "new", 8), ("s", "static", 5), ("←→", "at once", 5), *last)
        if batch.replaced:
            return (("n", "new", 8), ("↑↓", "lane", 4), ("⏎", "open", 6), ("s", "static", 3), *last)
        going: tuple[KeyHint, ...] = (
            ("space", "step", 9),
            ("r", "pause" if self.control.running else "run", 8),
        )
        own: tuple[KeyHint, ...] = (("⏎", "open", 6), ("a", "add", 6), ("x", "take out", 5))
        over: tuple[KeyHint, ...] = (("v", "alone", 7),)
        return (
            *(over if batch.over else going),
            ("↑↓", "lane", 4),
            *own,
            ("n", "new", 4),
            ("s", "static", 3),
            *last,
        )

    # ---- keys -------------------------------------------------------------------------------

    def action_step(self) -> None:
        """Let every lane grow by a token, or pause."""
        if not self.refused():
            self.control.step()
            self._began()

    def action_run(self) -> None:
        """Run to the end, or pause."""
        if not self.refused():
            self.control.run()
            self._began()

    def _began(self) -> None:
        """Say what is missing, where nothing could go on."""
        if not self._replaced():
            self.say("" if self.current is not None else "Press n to give prompts first")

    def action_highlight(self, by: int) -> None:
        """Highlight another lane."""
        if self.current is not None:
            self.place = max(0, min(len(self.current.lanes) - 1, self.place + by))
        self.say()

    def action_turn(self) -> None:
        """Show the next panel, where one is shown at a time."""
        self._view += 1
        self.changed()

    def action_new(self) -> None:
        """Ask for the prompts of another batch."""
        if not self.refused():
            own = self.host.controller.setup.prompt.text
            self._ask(
                self._typed or "\n".join([" ".join(own.split()) or EXAMPLES[0], *EXAMPLES]), begins=True
            )

    def action_add(self) -> None:
        """Ask for prompts to add, or for those of a batch, where there is none to add to."""
        if self.current is None or self.current.replaced:
            self.action_new()
        elif not self.refused():
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

    def action_remove(self) -> None:
        """Take the highlighted lane out."""
        if self.refused():
            return
        lane = self.lane
        if lane is None or lane.ended is not None:
            self.say(
                "This lane has ended. Highlight one that goes on with ↑ ↓" if lane else "There is no lane yet"
            )
            return
        if not self._replaced():
            self.control.remove(lane.number)
            self.say()

    def action_compare(self) -> None:
        """Run each prompt alone, or stop that."""
        if self.refused():
            return
        if self._replaced():
            return
        if self.current is None or not self.current.over:
            self.say("Run the batch to its end first: r")
            return
        self.control.compare()
        self.say()

    def _replaced(self) -> bool:
        """Whether nothing can be done with the batch any more, which is said."""
        replaced = self.current is not None and self.current.replaced
        if replaced:
            self.say(f"{REPLACED}. Press n to begin another")
        return replaced

    def action_static(self) -> None:
        """Have the next batch keep rows until all lanes have ended, or give them on."""
        if self.refused():
            return
        self.control.static = not self.control.static
        kind = "static: rows stay until all lanes have ended" if self.control.static else "continuous"
        self.say(f"The next batch is {kind}. Press n for it" if self.current is not None else "")

    def action_resize(self, by: int) -> None:
        """Have the next batch run more lanes at once, or fewer."""
        if self.refused():
            return
        self.control.resize(by)
        self.say(
            f"The next batch runs {self.control.size} at once. Press n for it"
            if self.current is not None
            else ""
        )

    def action_go(self) -> None:
        """Open the highlighted lane in the session."""
        if self.refused():
            return
        if (lane := self.lane) is None:
            self.action_new()
        elif not lane.tokens:
            self.say("This lane has no token yet. Press space for one step of all")
        else:
            self.control.job.stop()
            self.dismiss(lane.number)

    def action_leave(self) -> None:
        """Go back; what runs pauses."""
        self.control.job.stop()
        self.dismiss(None)
