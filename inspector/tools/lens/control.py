"""What is chosen in the logit lens, and its keys."""

from __future__ import annotations

from msgspec import Struct

from inspector.main.inside.keys import inside_table, walking
from inspector.widgets.actions import Action, both


class LensChoices(Struct):
    """The choices of a person, kept from opening to opening."""

    measure: int = 0
    layer: int | None = None
    """The cell that is looked at; None for the last layer's."""
    followed: int | None = None
    """The token that is followed; None for the one that was taken next."""
    opened_at: tuple[int, int | None] | None = None
    """The token before the slot at which it was chosen, and the slot's: elsewhere it starts with the one that was
    taken."""


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
