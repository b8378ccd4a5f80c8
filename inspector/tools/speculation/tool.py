"""Speculative decoding as a tool: the key that opens its screen."""

from __future__ import annotations

from inspector.main.tool import Host, Tool, ToolActions
from inspector.tools.speculation.control import SPECULATION_SCREEN, SpeculationControl
from inspector.widgets.actions import Action, Needs


class SpeculationActions(ToolActions):
    """Takes rounds in a screen of its own."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.control = SpeculationControl(host.controller)

    def open(self) -> None:
        """Open the screen; a run pauses."""
        from inspector.tools.speculation.screen import SpeculationScreen

        self.open_screen(SpeculationScreen(self.host, self.control))


SPECULATION = Tool(
    "speculation",
    "Speculation",
    SpeculationActions,
    screen=True,
    actions=(
        Action("speculation", "Speculate",
            "Take several tokens with one forward: a draft proposes them, the model accepts or refuses each.",
            SpeculationActions.open, Needs.DISTRIBUTION | Needs.ENGINE,
            recorded=lambda own: own.control.state.latest is not None,
            synonyms="speculative decoding, speculative sampling, draft model, assisted generation, prompt lookup",
            view="speculation"),
    ),
    owners=(SPECULATION_SCREEN,),
)  # fmt: skip
