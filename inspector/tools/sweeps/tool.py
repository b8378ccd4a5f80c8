"""Sweeps as a tool: the key that opens their screen."""

from __future__ import annotations

from inspector.main.tool import Host, Tool, ToolActions
from inspector.tools.sweeps.control import SWEEP_SCREEN, SweepControl
from inspector.widgets.actions import Action, Needs


class SweepActions(ToolActions):
    """Measures in a screen of its own."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.control = SweepControl(host.controller)

    def open(self) -> None:
        """Open the sweeps."""
        from inspector.tools.sweeps.screen import SweepScreen

        self.open_screen(SweepScreen(self.host, self.control))


SWEEP = Tool(
    "sweeps",
    "Sweeps",
    SweepActions,
    screen=True,
    actions=(
        Action("sweep", "Sweeps",
            "Measure time to first token over the prompt's length, time per token over the context's, throughput over "
            "the batch, and what inspection costs.", SweepActions.open, Needs.MODEL | Needs.ENGINE,
            refusal="There is no model to measure yet", recorded=lambda own: own.control.swept is not None, looks=True,
            synonyms="benchmark, throughput, time to first token, time per token, prompt length, scaling, ttft, "
            "tokens a second", view="sweeps"),
    ),
    owners=(SWEEP_SCREEN,),
)  # fmt: skip
