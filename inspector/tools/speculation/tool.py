"""Speculative decoding as a tool: the key that opens it."""

from __future__ import annotations

from inspector.keys import KEYS
from inspector.main.tool import STEP, HelpSection, Host, Key, Needs, Tool, ToolActions
from inspector.tools.speculation.control import SpeculationControl


class SpeculationActions(ToolActions):
    """Takes rounds in a screen of its own."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.control = SpeculationControl(host.controller)

    def open(self) -> None:
        """Open the screen; a run pauses."""
        from inspector.tools.speculation.screen import SpeculationScreen

        self.controller.client.pause()
        self.host.answer()
        self.host.open(SpeculationScreen(self.host, self.control))


SPECULATION = Tool(
    "speculation",
    "Speculation",
    SpeculationActions,
    screen=True,
    keys=(
        Key("speculation", *KEYS["speculation"], "Speculate", STEP,
            "Take several tokens with one forward: a draft proposes them, the model accepts or refuses each.",
            SpeculationActions.open, Needs.DISTRIBUTION | Needs.ENGINE,
            recorded=lambda own: own.control.state.latest is not None),
    ),
    help=(
        HelpSection(
            "In speculation",
            (
                ("`space` `⏎`", "Take a round, or the rest of one; while a run goes on, pause."),
                ("`n`", "The next stage of a round: propose, verify, take."),
                ("`r`", "Take rounds until a stop or a breakpoint; again to pause."),
                ("`d`", "Draft by lookup, by the model's own 4 bits, or by the model that was named."),
                ("`o`", "Name a model that drafts; its tokens must be the model's."),
                ("`←` `→` `-` `+`", "Draft fewer tokens for a round, or more."),
                ("`v`", "Decode the same stretch again by plain steps, in separate caches, and compare."),
                ("`c`", "Count rounds from the next one on."),
                ("`T`", "Switch between the dark and the light theme."),
                ("`esc` `!` `q`", "Go back; a run under way pauses."),
            ),
            "A drafted token is accepted where it is the one that the position's own draw takes from the model's "
            "distribution, so that the text is that of plain steps. `✓` accepted, `✗` refused, `?` behind a refused "
            "one: not looked at, `→` taken instead. The tokens taken are ordinary steps; refused drafts stand dim "
            "behind the text until the next one.",
        ),
    ),
)  # fmt: skip
