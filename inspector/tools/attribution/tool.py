"""Contributions as a tool: the key that opens their screen."""

from __future__ import annotations

from engine.protocol import AttributionRead
from inspector.main.evidence import ExportPart
from inspector.main.tool import Host, Tool, ToolActions
from inspector.session.requests import Replies
from inspector.tools.attribution.control import ATTRIBUTION_SCREEN, AttributionChoices
from inspector.widgets.actions import Action, Needs


class AttributionActions(ToolActions):
    """Opens the view, and keeps what was chosen in it and the answers of the engine."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.answers = Replies(host.controller.client, AttributionRead)
        self.choices = AttributionChoices()

    def open(self) -> None:
        """Take a logit of the selected token apart: against the highlighted candidate, where that is another one."""
        from inspector.tools.attribution.screen import AttributionScreen

        choices = self.choices.begin(self.timeline, self.host.candidate)
        self.open_screen(AttributionScreen(self.host, self.answers, choices))

    def point(self, *place: int) -> None:
        """Choose the largest part of a layer."""
        self.choices.layer, self.choices.row = place[0] - 1, None


def _exports() -> tuple[ExportPart, ...]:
    from inspector.tools.attribution.evidence import CONTRIBUTIONS_PART

    return (CONTRIBUTIONS_PART,)


ATTRIBUTION = Tool(
    "attribution",
    "Contributions",
    AttributionActions,
    screen=True,
    actions=(
        Action("attribution", "Contributions",
            "Show what each layer, attention, MLP and head adds to the logit of a token.", AttributionActions.open,
            Needs.DISTRIBUTION | Needs.ENGINE, recorded=lambda own: own.answers.any, looks=True,
            synonyms="direct logit attribution, feature attribution, saliency, importance, which part matters, "
            "logit difference", view="parts"),
    ),
    owners=(ATTRIBUTION_SCREEN,),
    exports=_exports,
)  # fmt: skip
