"""Contributions as a tool."""

from __future__ import annotations

from engine.protocol import Attribute, AttributionRead
from inspector.keys import KEYS
from inspector.main.inside.help import SHARED, WALK
from inspector.main.tool import LOOK, HelpSection, Host, Key, Needs, Tool, ToolActions
from inspector.session.answers import Answers
from inspector.state.contributions import compared
from inspector.tools.attribution.choices import AttributionChoices


class AttributionActions(ToolActions):
    """Opens the view, and keeps what it was told."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.answers: Answers[AttributionRead] = Answers(
            host.controller.client, Attribute, AttributionRead,
            lambda answer: (answer.node, tuple(token.id for token in answer.tokens)),
        )  # fmt: skip
        self.choices = AttributionChoices()

    def open(self) -> None:
        """Take a logit of the selected token apart: against the highlighted candidate, where that is another one."""
        from inspector.tools.attribution.screen import AttributionScreen

        self.controller.client.pause()
        self.host.answer()
        highlighted, choices = self.host.candidate, self.choices.at(self.timeline.before)
        if highlighted is not None and highlighted.id not in compared(self.timeline)[:1]:
            choices.against = highlighted.id
        self.host.open(AttributionScreen(self.host, self.answers, choices))


ATTRIBUTION = Tool(
    "attribution",
    "Contributions",
    AttributionActions,
    screen=True,
    family="inside",
    keys=(
        Key("attribution", *KEYS["attribution"], "Contributions", LOOK,
            "Show what each layer, attention, MLP and head adds to the logit of a token.",
            AttributionActions.open, Needs.DISTRIBUTION | Needs.ENGINE, recorded=lambda own: own.answers.any),
    ),
    help=(
        HelpSection(
            "In the contributions",
            (
                ("`↑` `↓` `pgup` `pgdn`", "Look at another part: the line under the bars tells it in words."),
                ("`⏎`", "Show the heads of the attention that is looked at, or fold them. `h` does so for all."),
                ("`s`", "Sort by size, heads in their attention's place, or in the order of the layers."),
                ("`f` `F`", "Take another candidate's logit apart."),
                ("`c` `C`", "Compare it with another candidate; first the one highlighted on the main screen."),
                ("`o`", "Look at one token alone, or at the difference of two."),
                WALK,
                *SHARED,
            ),
        ),
    ),
)  # fmt: skip
