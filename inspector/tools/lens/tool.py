"""The logit lens as a tool."""

from __future__ import annotations

from engine.commands import ReadLens
from engine.records import LensRead
from inspector.main.tool import LOOK, HelpSection, Host, Key, Needs, Tool, ToolActions
from inspector.session.answers import Answers
from inspector.tools.lens.screen import LensScreen


class LensActions(ToolActions):
    """Opens the lens, and keeps what it was told."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.answers: Answers[LensRead] = Answers(
            host.controller.client, ReadLens, LensRead, lambda answer: answer.node
        )

    def open(self) -> None:
        """Look at the selected token through the lens."""
        self.controller.client.pause()
        self.host.answer()
        self.host.open(LensScreen(self.host, self.answers))


LENS = Tool(
    "lens",
    "Logit lens",
    LensActions,
    family="inside",
    keys=(
        Key("lens", "I", "I", "Lens", LOOK,
            "Show what each layer would predict, read through the model's own end.",
            LensActions.open, Needs.DISTRIBUTION | Needs.ENGINE, recorded=lambda own: own.answers.any),
    ),
    help=(
        HelpSection(
            "In the logit lens",
            (
                ("`←` `→` `home` `end`", "Look at another token."),
                ("`tab` `shift+tab`", "Show the next view of the same token, or the one before."),
                ("`pgup` `pgdn`", "Scroll the table."),
                ("`esc` `q`", "Go back; what is computed stops."),
            ),
        ),
    ),
)  # fmt: skip
