"""A batch as a tool: the key that opens its screen."""

from __future__ import annotations

from inspector.keys import key_for
from inspector.main.tool import Host, Tool, ToolActions
from inspector.tools.batch.control import BATCH_SCREEN, BatchControl
from inspector.widgets.actions import Action, Needs


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
            f"The batch is paused: {key_for('batch')} continues it" if waits and number is None else ""
        )


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
            looks=True,
            synonyms="several prompts, many prompts, batch of prompts, continuous batching, parallel prompts",
            view="batch"),
    ),
    owners=(BATCH_SCREEN,),
)  # fmt: skip
