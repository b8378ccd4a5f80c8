"""What a batch asks of the engine, and its keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

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
from inspector.session.controller import Controller
from inspector.session.requests import Job
from inspector.session.transport import MAX_QUEUED_STEPS
from inspector.state.batch import Batches, BatchSoFar, LaneSoFar
from inspector.widgets.actions import Action, Needs, back, both, screen_table

# ---- what the engine is asked -------------------------------------------------------------------

SIZES = (1, 2, 4, 8, 16, 32, 64)
"""Lanes at once."""


class BatchControl:
    """Begins batches, goes on with them, and opens a lane in the session.

    Args:
        controller: Sends the commands.
    """

    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self.size, self.static = 8, False
        """Of the next batch."""
        self.prompts: list[LanePrompt] = []
        """Those of the lanes of the batch that was begun here, by number."""
        self.job = Job(controller.client, StartBatch, AdvanceBatch, CompareBatch, AddLanes, RemoveLane)
        controller.client.listen(self._receive, BatchOpened)

    @property
    def batch(self) -> BatchSoFar | None:
        """The last batch of prompts; in a recording of draws alone their continuations."""
        batches = self.controller.timeline.of(Batches)
        return batches.last or (batches.continued if self.controller.transport.recorded else None)

    @property
    def running(self) -> bool:
        """True if a command goes on by itself."""
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
        prompts = tuple(prompts)
        self.prompts = list(prompts)
        self.job.start(StartBatch(prompts, self.size, self.static, steps=0))

    def add(self, prompts: Sequence[LanePrompt]) -> None:
        """Add prompts to the batch, while the others go on; begin one where there is none to add to."""
        if self.batch is None or self.batch.replaced:
            self.begin(prompts)
            return
        self.prompts += prompts
        self.job.failures.clear()
        self.job.start(AddLanes(tuple(prompts)))
        if self.batch.over:
            self.job.start(AdvanceBatch(steps=0))

    def remove(self, lane: int) -> None:
        """Take a lane out, while the others go on."""
        self.job.start(RemoveLane(lane))

    def step(self) -> None:
        """Let every lane grow by a token, or pause."""
        if self.running:
            self.job.stop()
        elif self._goes_on and len(self.job.commands) < MAX_QUEUED_STEPS:
            self.job.start(AdvanceBatch(steps=1))

    def run(self) -> None:
        """Run to the end, or pause."""
        if not self.job.stop() and self._goes_on:
            self.job.start(AdvanceBatch())

    @property
    def _goes_on(self) -> bool:
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
        self.controller.timeline.select(None)
        known = self.prompts[lane.number] if lane.number < len(self.prompts) else LanePrompt(lane.opened.text)
        self.controller.client.pause()
        prompt = Prefill(known.text, known.chat, known.system, options=known.options)
        self.controller.setup.give(prompt, partial(self._take_lane, ids))

    def _take_lane(self, ids: tuple[int, ...], record: Record) -> None:
        """Take the ids of a lane once its prompt was read."""
        if isinstance(record, Prefilled):
            self.controller.client.do(Take(record.next.node, ids))

    def _receive(self, record: Record) -> None:
        if isinstance(record, BatchOpened) and record.node is None and not self.job.answered:
            self.prompts = []  # it was not begun here


# ---- keys ---------------------------------------------------------------------------------------


def _begun(word: str) -> Callable[[Any], str]:
    """A word for the line of keys, once there is a batch."""
    return lambda own: word if own.current is not None else ""


def _growing(word: str) -> Callable[[Any], str]:
    """A word for the line of keys while the engine has the batch."""
    return lambda own: word if own.current is not None and not own.current.replaced else ""


def _going(word: Callable[[Any], str]) -> Callable[[Any], str]:
    """A word for the line of keys while lanes are running."""
    return lambda own: (
        word(own) if own.current is not None and not (own.current.over or own.current.replaced) else ""
    )


BATCH_SCREEN = screen_table(
    "In a batch",
    Action("batch.step", "Step", "Extend every lane by a token; while they run, pause.", lambda own: own.take_step(),
           Needs.ENGINE, hint=_going(lambda own: "step"), worth=9),
    Action("batch.run", "Run", "Run until all lanes have ended; again to pause.", lambda own: own.run_lanes(),
           Needs.ENGINE, hint=_going(lambda own: "pause" if own.control.running else "run"), worth=8),
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
           hint=lambda own: "alone" if own.current and own.current.over and not own.current.replaced else ""),
    Action("batch.new", "New batch",
           "Begin another batch: a prompt on each line, or an object with settings of its own.",
           lambda own: own.begin_another(), Needs.ENGINE, hint="new", worth=8),
    Action("batch.static", "Static",
           "The next batch is static (rows stay until all lanes have ended), or continuous.",
           lambda own: own.change_kind(), Needs.ENGINE, hint="static", worth=3),
    *both(("batch.fewer", "batch.more"), ("Fewer", "More"),
          "The next batch: fewer lanes at once, or more; the others wait.", lambda own, by: own.change_size(by),
          needs=Needs.ENGINE, hint=lambda own: "at once" if own.current is None else "", worth=5),
    Action("batch.turn", "Next panel", "Where there is room for one panel: lanes, lane, or all lanes.",
           lambda own: own.turn(), hint=lambda own: "panel" if own.low else "", worth=8),
    back("batch.leave", "Go back; the batch pauses, and `{batch}` continues it.", worth=9),
)  # fmt: skip
