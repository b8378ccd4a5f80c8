"""What is chosen among the contributions, and the keys."""

from __future__ import annotations

from msgspec import field

from inspector.main.inside.keys import inside_table, walking
from inspector.state.attribution import TokenChoices
from inspector.widgets.actions import Action, both


class AttributionChoices(TokenChoices):
    """The choices of a person, kept from opening to opening."""

    by_size: bool = False
    unfolded: set[int] = field(default_factory=set)
    """Parts whose heads are shown, by their place in the record."""
    row: tuple[int, int | None] | None = None
    """The row that is looked at; None for the largest."""
    layer: int | None = None
    """The layer whose largest row that is; None for the largest of all."""


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
