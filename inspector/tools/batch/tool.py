"""A batch as a tool: the key that opens it, and where a lane leads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from inspector.keys import key_for
from inspector.main.tool import LOOK, Host, Tool, ToolActions
from inspector.tools.batch.control import BatchControl
from inspector.widgets.actions import Action, Needs, back, both, screen_table


class BatchActions(ToolActions):
    """Runs several prompts at once, in a screen of its own."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.control = BatchControl(host.controller)

    def open(self) -> None:
        """Open the batch; one that was paused goes on there."""
        from inspector.tools.batch.screen import BatchScreen

        self.open_screen(BatchScreen(self.host, self.control), self._left)

    def _left(self, number: int | None) -> None:
        """Go to the end of the lane that was opened."""
        batch = self.control.batch
        if number is not None and batch is not None:
            self.control.open_lane(batch.lanes[number])
        waits = batch is not None and not (batch.over or batch.replaced or self.controller.transport.recorded)
        self.host.answer(
            f"The batch waits: {key_for('batch')} goes on with it" if waits and number is None else ""
        )


def _begun(word: str) -> Callable[[Any], str]:
    """A word for the line of keys, once there is a batch."""
    return lambda own: word if own.current is not None else ""


def _growing(word: str) -> Callable[[Any], str]:
    """A word for the line of keys while the engine has the batch."""
    return lambda own: word if own.current is not None and not own.current.replaced else ""


def _going(word: Callable[[Any], str]) -> Callable[[Any], str]:
    """A word for the line of keys while lanes go on."""
    return lambda own: (
        word(own) if own.current is not None and not (own.current.over or own.current.replaced) else ""
    )


BATCH_SCREEN = screen_table(
    "In a batch",
    Action("batch.step", "Step", "Let every lane grow by a token; while they run, pause.", lambda own: own.take_step(),
           Needs.ENGINE, hint=_going(lambda own: "step"), worth=9),
    Action("batch.run", "Run", "Run until all lanes have ended; again to pause.", lambda own: own.run_lanes(),
           Needs.ENGINE, hint=_going(lambda own: "pause" if own.control.running else "run"), worth=8),
    *both(("batch.above", "batch.below"), ("Lane above", "Lane below"),
          "Highlight another lane: its candidates, its draw and its KV are shown.", lambda own, by: own.highlight(by),
          hint=lambda own: "" if own.recorded else _begun("lane")(own), worth=4),
    Action("batch.open", "Open", "Open the highlighted lane in the session, with all the panels.",
           lambda own: own.open_lane(), Needs.ENGINE, hint=_begun("open"), worth=6),
    Action("batch.add", "Add", "Add prompts while the others go on.", lambda own: own.add(), Needs.ENGINE,
           hint=_growing("add"), worth=6),
    Action("batch.take_out", "Take out", "Take the highlighted lane out while the others go on.",
           lambda own: own.take_out(), Needs.ENGINE, hint=_growing("take out"), worth=5),
    Action("batch.alone", "Alone", "Once all have ended: run each prompt alone, for equal ids and the time of both.",
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
    back("batch.leave", "Go back; the batch pauses, and `{batch}` goes on with it.", worth=9),
)  # fmt: skip
BATCH = Tool(
    "batch",
    "Batch",
    BatchActions,
    screen=True,
    actions=(
        Action("batch", "Batch",
            "Run several prompts at once, a lane for each, one forward for all; step them together.",
            BatchActions.open, Needs.MODEL | Needs.ENGINE,
            recorded=lambda own: own.control.batch is not None,
            group=LOOK, synonyms="several prompts many throughput parallel continuous"),
    ),
    owners=(BATCH_SCREEN,),
)  # fmt: skip
