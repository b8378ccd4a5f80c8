"""Contributions as a tool: its keys, and what was chosen in its view."""

from __future__ import annotations

from dataclasses import field

from engine.frozen import slotted
from engine.protocol import AttributionRead
from inspector.main.evidence import ExportPart
from inspector.main.inside.keys import inside_table, walking
from inspector.main.tool import Host, Tool, ToolActions
from inspector.session.requests import LookReplies
from inspector.state.contributions import TokenChoices
from inspector.widgets.actions import Action, Needs, both


@slotted
class AttributionChoices(TokenChoices):
    """The choices of a person, kept from opening to opening."""

    by_size: bool = False
    unfolded: set[int] = field(default_factory=set)
    """Parts whose heads are shown, by their place in the record."""
    row: tuple[int, int | None] | None = None
    """The row that is looked at; None for the largest."""
    layer: int | None = None
    """The layer whose largest row that is; None for the largest of all."""


class AttributionActions(ToolActions):
    """Opens the view, and keeps what was chosen in it and the answers of the engine."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.answers = LookReplies(
            host.controller.client,
            AttributionRead,
            lambda answer: (answer.node, tuple(token.id for token in answer.tokens)),
        )
        self.choices = AttributionChoices()

    def open(self) -> None:
        """Take a logit of the selected token apart: against the highlighted candidate, where that is another one."""
        from inspector.tools.attribution.screen import AttributionScreen

        choices = self.choices.begin(self.timeline, self.host.candidate)
        self.open_screen(AttributionScreen(self.host, self.answers, choices))

    def point(self, *place: int) -> None:
        """Choose the largest part of a layer."""
        self.choices.layer, self.choices.row = place[0] - 1, None


_PART = "Look at another part: the line under the bars says it in words."
ATTRIBUTION_SCREEN = inside_table(
    "In the contributions",
    *both(("attribution.part_before", "attribution.next_part"), ("Previous part", "Next part"), _PART,
          lambda own, by: own.turn_row(by), hint="part", worth=4),
    *both(("attribution.ten_before", "attribution.ten_after"), ("Ten before", "Ten after"), _PART,
          lambda own, by: own.turn_row(by), by=(-10, 10)),
    Action("attribution.heads", "Heads",
           "Show the heads of the selected attention, or fold them. `{attribution.all_heads}` does so for "
           "all.",
           lambda own: own.unfold(), hint=lambda own: "heads" if own.has_heads else "", worth=7),
    Action("attribution.all_heads", "All heads", "Show the heads of every attention, or fold them.",
           lambda own: own.unfold_all(), hint="all heads", worth=2, place=1, listed=False),
    Action("attribution.sort", "Sort", "Sort by size, with unfolded heads in place of their attention, or by layer.",
           lambda own: own.sort(), hint=lambda own: "by layer" if own.choices.by_size else "by size", worth=5),
    *both(("attribution.next_token", "attribution.token_before"), ("Next token", "Previous token"),
          "Take another candidate's logit apart.", lambda own, by: own.choices.follow_other(own.timeline, by),
          by=(1, -1), hint="other", worth=5, one=True),
    *both(("attribution.compare", "attribution.compare_back"), ("Compare", "Compare back"),
          "Compare it with another candidate; first the highlighted one.",
          lambda own, by: own.choices.compare_with(own.timeline, by), by=(1, -1), hint="against", worth=5, one=True),
    Action("attribution.alone", "One or two", "Look at one token, or at the difference of two.",
           lambda own: own.turn_alone(), hint=lambda own: "two" if own.choices.alone else "alone", worth=3),
    *walking(),
)  # fmt: skip


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
