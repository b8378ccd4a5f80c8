"""A batch as a tool: the key that opens its screen."""

from __future__ import annotations

from inspector.keys import key_for
from inspector.main.tool import Tool
from inspector.tools.batch.control import BATCH_SCREEN, BatchActions
from inspector.widgets.actions import Action, Needs


def _open(own: BatchActions) -> None:
    from inspector.tools.batch.screen import BatchScreen

    def left(number: int | None) -> None:
        batch = own.batch
        if number is not None and batch is not None:
            own.open_lane(batch.lanes[number])
        waits = number is None and own.continues and not own.controller.transport.recorded
        own.host.answer(f"The batch is paused: {key_for('batch')} continues it" if waits else "")

    own.open_screen(BatchScreen(own.host, own), left)


BATCH = Tool(
    "batch",
    "Batch",
    BatchActions,
    actions=(
        Action("batch", "Batch",
            "Run several prompts at once, a lane for each, one forward for all; step them together.",
            _open, Needs.MODEL | Needs.ENGINE, recorded=lambda own: own.batch is not None, looks=True,
            synonyms="several prompts, many prompts, batch of prompts, continuous batching, parallel prompts",
            view="batch"),
    ),
    owners=(BATCH_SCREEN,),
)  # fmt: skip
