"""The commands of a batch to the engine, and its keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from engine.protocol import (
    AddLanes,
    AdvanceBatch,
    BatchOpened,
    CompareBatch,
    LanePrompt,
    Prefill,
    Prefilled,
    Record,
    RemoveLane,
    StartBatch,
    Take,
)
from inspector.main.tool import ToolActions
from inspector.session.requests import Job
from inspector.session.transport import MAX_QUEUED_STEPS
from inspector.state.batch import Batches, BatchSoFar, LaneSoFar
from inspector.widgets.actions import Action, Needs, back, both, screen_table

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen

# ---- what the engine is asked -------------------------------------------------------------------

SIZES = (1, 2, 4, 8, 16, 32, 64)
"""Lanes at once."""


class BatchActions(ToolActions):
    """Begins batches, continues them, and opens a lane in the session."""

    def __init__(self, host: MainScreen) -> None:
        super().__init__(host)
        self.size, self.static = 8, False
        """The size and kind of the next batch."""
        self.prompts: list[LanePrompt] = []
        """The prompts of the lanes of the batch that was begun here, by number."""
        self.job = Job(self.controller.client, StartBatch, AdvanceBatch, CompareBatch, AddLanes, RemoveLane)
        self.controller.client.listen(self._receive, BatchOpened)

    @property
    def batch(self) -> BatchSoFar | None:
        """The last batch of prompts; in a recording of draws alone their continuations."""
        batches = self.timeline.of(Batches)
        return batches.last or (batches.continued if self.controller.transport.recorded else None)

    @property
    def running(self) -> bool:
        """True if more than single steps is under way."""
        return any(not isinstance(each, AdvanceBatch) or each.steps is None for each in self.job.commands)

    def lane_prompts(self, lines: Sequence[str]) -> tuple[LanePrompt, ...]:
        """Prompts as the session's own is given: through the chat template, or as raw text.

        Raises:
            PromptError: A line names what is no setting, or a value that can't be.
        """
        from inspector.config.presets import lanes

        own = self.controller.setup.prompt
        return lanes(lines, LanePrompt("", own.chat, own.system, own.options), self.controller.setup.settings)

    def begin(self, prompts: Sequence[LanePrompt]) -> None:
        """Begin another batch, up to the end of its prefill."""
        self.job.stop()
        self.prompts = list(prompts)
        self.job.start(StartBatch(tuple(prompts), self.size, self.static, steps=0))

    def add(self, prompts: Sequence[LanePrompt]) -> None:
        """Add prompts to the batch while the others continue; begin one if there is none to add to."""
        if self.batch is None or self.batch.replaced:
            self.begin(prompts)
            return
        self.prompts += prompts
        self.job.failures.clear()
        self.job.start(AddLanes(tuple(prompts)))
        if self.batch.over:
            self.job.start(AdvanceBatch(steps=0))

    def remove(self, lane: int) -> None:
        """Take a lane out while the others continue."""
        self.job.start(RemoveLane(lane))

    def step(self) -> None:
        """Let every lane grow by a token, or pause."""
        if self.running:
            self.job.stop()
        elif self.continues and len(self.job.commands) < MAX_QUEUED_STEPS:
            self.job.start(AdvanceBatch(steps=1))

    def run(self) -> None:
        """Run to the end, or pause."""
        if not self.job.stop() and self.continues:
            self.job.start(AdvanceBatch())

    @property
    def continues(self) -> bool:
        """True if lanes are running or wait."""
        return self.batch is not None and not (self.batch.over or self.batch.replaced)

    def compare(self) -> None:
        """Run each prompt alone, or stop that."""
        if not self.job.stop() and self.batch is not None and self.batch.over and not self.batch.replaced:
            self.job.start(CompareBatch())

    def resize(self, by: int) -> None:
        """Have the next batch run more lanes at once, or fewer."""
        self.size = SIZES[max(0, min(len(SIZES) - 1, SIZES.index(self.size) + by))]

    def open_lane(self, lane: LaneSoFar) -> None:
        """Have the session go to the end of a lane: by its prompt and its ids, so that all panels show it."""
        self.job.stop()
        ids = tuple(token.id for token in lane.tokens)
        self.timeline.select(None)
        known = self.prompts[lane.number] if lane.number < len(self.prompts) else LanePrompt(lane.opened.text)
        self.controller.client.pause()
        prompt = Prefill(known.text, known.chat, known.system, options=known.options)

        def take(record: Record) -> None:
            if isinstance(record, Prefilled):
                self.controller.client.do(Take(record.next.node, ids))

        self.controller.setup.give(prompt, take)

    def _receive(self, record: Record) -> None:
        if isinstance(record, BatchOpened) and record.node is None and not self.job.answered:
            self.prompts = []  # it was not begun here


# ---- keys ---------------------------------------------------------------------------------------


def _begun(word: str) -> Callable[[Any], str]:
    """A word for the line of keys, once there is a batch."""
    return lambda own: word if own.control.batch is not None else ""


def _growing(word: str) -> Callable[[Any], str]:
    """A word for the line of keys while the engine has the batch."""
    return lambda own: word if own.control.batch is not None and not own.control.batch.replaced else ""


BATCH_SCREEN = screen_table(
    "In a batch",
    Action("batch.step", "Step", "Extend every lane by a token; while they run, pause.",
           lambda own: own.advance(own.control.step), Needs.ENGINE, worth=9,
           hint=lambda own: "step" if own.control.continues else ""),
    Action("batch.run", "Run", "Run until all lanes have ended; again to pause.",
           lambda own: own.advance(own.control.run), Needs.ENGINE, worth=8,
           hint=lambda own: "" if not own.control.continues else "pause" if own.control.running else "run"),
    *both(("batch.above", "batch.below"), ("Lane above", "Lane below"),
          "Highlight another lane: its candidates, its draw and its KV are shown.", lambda own, by: own.highlight(by),
          hint=lambda own: "" if own.recorded else _begun("lane")(own), worth=4),
    Action("batch.open", "Open", "Open the highlighted lane in the session, with all the panels.",
           lambda own: own.open_lane(), Needs.ENGINE, hint=_begun("open"), worth=6),
    Action("batch.add", "Add", "Add prompts while the others continue.", lambda own: own.add(), Needs.ENGINE,
           hint=_growing("add"), worth=6),
    Action("batch.take_out", "Take out", "Remove the highlighted lane while the others continue.",
           lambda own: own.take_out(), Needs.ENGINE, hint=_growing("take out"), worth=5),
    Action("batch.alone", "Alone", "Once all have ended: run each prompt alone, and compare ids and times.",
           lambda own: own.compare(), Needs.ENGINE, worth=7, place=-1,
           hint=lambda own: "alone" if (batch := own.control.batch) and batch.over and not batch.replaced else ""),
    Action("batch.new", "New batch",
           "Begin another batch: a prompt on each line, or an object with settings of its own.",
           lambda own: own.begin_another(), Needs.ENGINE, hint="new", worth=8),
    Action("batch.static", "Static",
           "The next batch is static (rows stay until all lanes have ended), or continuous.",
           lambda own: own.change_kind(), Needs.ENGINE, hint="static", worth=3),
    *both(("batch.fewer", "batch.more"), ("Fewer", "More"),
          "The next batch: fewer lanes at once, or more; the others wait.", lambda own, by: own.change_size(by),
          needs=Needs.ENGINE, hint=lambda own: "at once" if own.control.batch is None else "", worth=5),
    Action("batch.turn", "Next panel", "Where there is room for one panel: lanes, lane, or all lanes.",
           lambda own: own.turn(), hint=lambda own: "panel" if own.low else "", worth=8),
    back("batch.leave", "Go back; the batch pauses, and `{batch}` continues it.", worth=9),
)  # fmt: skip
