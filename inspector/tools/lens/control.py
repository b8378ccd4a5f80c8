"""The choices in the logit lens, the answers of the engine, and the keys of its screen."""

from __future__ import annotations

from engine.protocol import LensRead
from inspector.main.inside.keys import inside_table, walking
from inspector.main.tool import Host, OfferedHeat, ToolActions
from inspector.session.requests import Replies
from inspector.widgets.actions import Action, both


class LensActions(ToolActions):
    """The answers of the engine, and what was chosen, from opening to opening."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.answers = Replies(host.controller.client, LensRead)
        self.measure = 0
        self.layer: int | None = None
        """The cell that is looked at; None for the last layer's."""
        self.followed: int | None = None
        """The token that is followed; None for the one that was taken next."""
        self.opened_at: tuple[int, int | None] | None = None
        """The token before the slot at which that was chosen, and the slot's: elsewhere it starts with the latter."""

    def heat(self) -> OfferedHeat | None:
        """The share of the layers before the final token leads, of each position of the latest table."""
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
        (self.layer,) = place


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
