"""What is chosen of a head's scores, and the keys."""

from __future__ import annotations

from msgspec import Struct

from inspector.main.inside.keys import SCROLLS, inside_table, walking
from inspector.widgets.actions import Action, both


class ScoreChoices(Struct):
    """The choices of a person, kept from opening to opening."""

    layer: int | None = None
    """From 0; None for that of the head that the engine finds."""
    head: int | None = None
    """From 0."""
    node: int | None = None
    """The token at which keys were chosen: elsewhere they are the usual ones."""
    key: int | None = None
    """The key that is looked at, by its place in the path; None for the heaviest."""
    against: int | None = None
    """The one that it is compared with; None for the mean of all."""

    def at(self, node: int) -> ScoreChoices:
        """These choices, the keys forgotten where they were chosen at another node."""
        if node != self.node:
            self.node, self.key, self.against = node, None, None
        return self


_KEY = "Look at a key with less or with more of the head's attention."
SCORES_SCREEN = inside_table(
    "While a head's scores are shown",
    *walking("Look from another token; the head stays."),
    *both(("scores.later_layer", "scores.earlier_layer"), ("Later layer", "Earlier layer"),
          "Choose a head of a later layer, or of an earlier one.", lambda own, by: own.turn_layer(by), by=(1, -1),
          hint="layer", worth=8),
    *both(("scores.head_before", "scores.next_head"), ("Previous head", "Next head"),
          "Choose the previous or the next head.", lambda own, by: own.turn_head(by), hint="head", worth=8),
    *both(("scores.lighter", "scores.heavier"), ("Lighter key", "Heavier key"), _KEY,
          lambda own, by: own.turn_key(by), by=(1, -1), hint="key", worth=8),
    *both(("scores.compare", "scores.compare_back"), ("Compare", "Compare back"),
          "Compare the key with another one instead of the mean.",
          lambda own, by: own.compare_with(by), by=(1, -1), hint="against", worth=6, one=True),
    Action("scores.mean", "Against the mean", "Compare the key with the mean of all keys again.",
           lambda own: own.against_mean(), hint=lambda own: "mean" if own.against is not None else "", worth=5),
    SCROLLS,
    text="A bar to the right makes the head look more at the key, a hatched one to the left less. A click on a token "
    "of the text looks at it as a key.",
)  # fmt: skip
