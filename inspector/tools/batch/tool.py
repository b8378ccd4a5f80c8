"""A batch as a tool: the key that opens it, and where a lane leads."""

from __future__ import annotations

from inspector.keys import KEYS, key_for
from inspector.main.tool import LOOK, HelpSection, Host, Key, Needs, Tool, ToolActions
from inspector.state.batch import Batches
from inspector.tools.batch.control import BatchControl


class BatchActions(ToolActions):
    """Runs several prompts at once, in a screen of its own."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.control = BatchControl(host.controller)
        host.controller.client.listeners.append(self.control.receive)

    def open(self) -> None:
        """Open the batch; one that was paused goes on there."""
        from inspector.tools.batch.screen import BatchScreen

        self.controller.client.pause()
        self.host.answer()
        self.host.open(BatchScreen(self.host, self.control), self._left)

    def _left(self, number: int | None) -> None:
        """Go to the end of the lane that was opened."""
        batch = self.control.batch
        if number is not None and batch is not None:
            self.control.open_lane(batch.lanes[number])
        waits = batch is not None and not batch.over and not self.controller.transport.recorded
        self.host.answer(
            f"The batch waits: {key_for('batch')} goes on with it" if waits and number is None else ""
        )


BATCH = Tool(
    "batch",
    "Batch",
    BatchActions,
    screen=True,
    keys=(
        Key("batch", *KEYS["batch"], "Batch", LOOK,
            "Run several prompts at once, a lane for each, one forward for all; step them together.",
            BatchActions.open, Needs.MODEL | Needs.ENGINE,
            recorded=lambda own: own.timeline.of(Batches).last is not None),
    ),
    help=(
        HelpSection(
            "In a batch",
            (
                ("`space`", "Let every lane grow by a token; while they run, pause."),
                ("`r`", "Run until all lanes have ended; again to pause."),
                ("`↑` `↓`", "Highlight another lane: its candidates, its draw and its KV are shown."),
                ("`⏎`", "Open the highlighted lane in the session, with all the panels."),
                ("`a`", "Add prompts while the others go on."),
                ("`x`", "Take the highlighted lane out while the others go on."),
                ("`v`", "Once all have ended: run each prompt alone, for equal ids and the time of both."),
                ("`n`", "Begin another batch: a prompt on each line, or an object with settings of its own."),
                ("`s`", "The next batch is static (rows stay until all lanes have ended), or continuous."),
                ("`←` `→`", "The next batch: fewer lanes at once, or more; the others wait."),
                ("`tab`", "Where there is room for one panel: lanes, lane, or all lanes."),
                ("`T`", "Switch between the dark and the light theme."),
                ("`esc` `Z` `q`", f"Go back; the batch pauses, and `{key_for('batch')}` goes on with it."),
            ),
        ),
    ),
)  # fmt: skip
