"""The logit lens as a tool."""

from __future__ import annotations

from engine.protocol import LensRead
from inspector.keys import KEYS
from inspector.main.inside.help import SHARED, WALK
from inspector.main.tool import LOOK, HelpSection, Host, Key, Needs, Tool, ToolActions
from inspector.session.requests import Replies
from inspector.tools.lens.choices import LensChoices


class LensActions(ToolActions):
    """Opens the lens, and keeps what it was told."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.answers = Replies(host.controller.client, LensRead, lambda answer: answer.node)
        self.choices = LensChoices()

    def open(self) -> None:
        """Look at the selected token through the lens."""
        from inspector.tools.lens.screen import LensScreen

        self.controller.client.pause()
        self.host.answer()
        self._begin()
        self.host.open(LensScreen(self.host, self.answers, self.choices))

    def point(self, *place: int) -> None:
        """Choose a layer."""
        (self.choices.layer,) = place

    def _begin(self) -> None:
        """Follow the candidate that was highlighted, where that isn't the one that stands there anyway."""
        if self.choices.opened_at != self.timeline.before:
            self.choices.followed, self.choices.opened_at = None, self.timeline.before
        highlighted, usual = self.host.candidate, self.timeline.candidates[:1]
        if highlighted is not None and highlighted.id not in (
            self.timeline.taken,
            *(one.id for one in usual),
        ):
            self.choices.followed = highlighted.id


LENS = Tool(
    "lens",
    "Logit lens",
    LensActions,
    screen=True,
    family="inside",
    keys=(
        Key("lens", *KEYS["lens"], "Lens", LOOK,
            "Show what each layer would predict, read through the model's own end.",
            LensActions.open, Needs.DISTRIBUTION | Needs.ENGINE, recorded=lambda own: own.answers.any),
    ),
    help=(
        HelpSection(
            "In the logit lens",
            (
                ("`↑` `↓`", "Look at another layer: its list of tokens stands under the table."),
                WALK,
                ("`f`", "Follow another token through the layers; first the candidate highlighted on the main screen."),
                ("`m`", "Colour by probability, by the rank of the final token, or by entropy."),
                ("`pgup` `pgdn`", "Go ten layers up or down."),
                *SHARED,
            ),
        ),
    ),
)  # fmt: skip
