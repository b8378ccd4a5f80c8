"""The logit lens as a tool: its keys, and what is kept from opening to opening."""

from __future__ import annotations

from engine.frozen import slotted
from engine.protocol import LensRead
from inspector.main.evidence import ExportPart
from inspector.main.inside.keys import inside_table, walking
from inspector.main.tool import Host, OfferedHeat, Tool, ToolActions
from inspector.session.requests import LookReplies
from inspector.widgets.actions import Action, Needs, both


@slotted
class LensChoices:
    """The choices of a person, kept from opening to opening."""

    measure: int = 0
    layer: int | None = None
    """The cell that is looked at; None for the last layer's."""
    followed: int | None = None
    """The token that is followed; None for the one that was taken next."""
    opened_at: int | None = None
    """The token at which it was chosen: elsewhere it starts with the one that was taken."""


class LensActions(ToolActions):
    """Opens the lens, and keeps the answers of the engine and what was chosen."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.answers = LookReplies(host.controller.client, LensRead, lambda answer: answer.node)
        self.choices = LensChoices()

    def open(self) -> None:
        """Look at the selected token through the lens."""
        from inspector.tools.lens.screen import LensScreen

        self._begin()
        self.open_screen(LensScreen(self.host, self.answers, self.choices))

    def heat(self) -> OfferedHeat | None:
        """How many of the layers it takes until the final token leads, of each position of the latest table."""
        read = self.answers.newest(self.timeline.before)
        if read is None or not read.columns:
            return None
        shares = {
            column.node: min(1.0, column.leads_from / (len(column.cells) - 1))
            for column in read.columns
            if len(column.cells) > 1
        }
        return OfferedHeat("layers until the answer leads", shares)

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


_LAYER = "Look at another layer: its list of tokens is under the table."
LENS_SCREEN = inside_table(
    "In the logit lens",
    *both(("lens.layer_above", "lens.layer_below"), ("Layer above", "Layer below"), _LAYER,
          lambda own, by: own.turn_layer(by), by=(1, -1), hint="layer", worth=7),
    *walking(),
    Action("lens.follow", "Follow",
           "Follow another token through the layers; first the highlighted candidate.",
           lambda own: own.follow_next(), hint="follow another", worth=5),
    Action("lens.measure", "Measure", "Colour by probability, by the rank of the final token, or by entropy.",
           lambda own: own.change_measure(), hint=lambda own: f"colour: {own.measure.name}", worth=4),
    *both(("lens.ten_above", "lens.ten_below"), ("Ten above", "Ten below"), "Go ten layers up or down.",
          lambda own, by: own.turn_layer(by), by=(10, -10)),
)  # fmt: skip


def _exports() -> tuple[ExportPart, ...]:
    from inspector.tools.lens.evidence import LENS_PART

    return (LENS_PART,)


LENS = Tool(
    "lens",
    "Logit lens",
    LensActions,
    screen=True,
    actions=(
        Action("lens", "Lens", "Show what each layer would predict, read by the model's last norm and output matrix.",
            LensActions.open, Needs.DISTRIBUTION | Needs.ENGINE, recorded=lambda own: own.answers.any, looks=True,
            synonyms="logit lens, early exit, intermediate layers, layer predictions, unembed", view="lens"),
    ),
    owners=(LENS_SCREEN,),
    exports=_exports,
)  # fmt: skip
