"""Sweeps as a tool: the key that opens them."""

from __future__ import annotations

from inspector.keys import KEYS
from inspector.main.tool import LOOK, HelpSection, Host, Key, Needs, Tool, ToolActions
from inspector.tools.sweeps.control import SweepControl


class SweepActions(ToolActions):
    """Measures in a screen of its own."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.control = SweepControl(host.controller)

    def open(self) -> None:
        """Open the sweeps."""
        from inspector.tools.sweeps.screen import SweepScreen

        self.controller.client.pause()
        self.host.answer()
        self.host.open(SweepScreen(self.host, self.control))


SWEEP = Tool(
    "sweeps",
    "Sweeps",
    SweepActions,
    screen=True,
    keys=(
        Key("sweep", *KEYS["sweep"], "Sweeps", LOOK,
            "Measure time to first token over the prompt's length, time per token over the context's, throughput over "
            "the batch, and what inspection costs.",
            SweepActions.open, Needs.MODEL | Needs.ENGINE, refusal="There is no model to measure yet",
            recorded=lambda own: own.control.swept is not None),
    ),
    help=(
        HelpSection(
            "While sweeps are measured",
            (
                ("`space` `r` `⏎`", "Start, or stop."),
                ("`1` to `5`", "Measure a sweep, or leave it out."),
                ("`←` `→`", "Go to shorter prompts and contexts, or to longer ones."),
                ("`↑` `↓` `pgup` `pgdn`", "Scroll the tables."),
                ("`T`", "Switch between the dark and the light theme."),
                ("`esc` `y` `q`", "Go back; what is measured stops."),
            ),
        ),
    ),
)  # fmt: skip
