"""Attention as a tool: the key that opens it."""

from __future__ import annotations

from inspector.main.inside.keys import SCROLLS, inside_table, walking
from inspector.main.tool import LOOK, Host, Tool, ToolActions
from inspector.tools.attention.control import AttentionControl
from inspector.tools.attention.weights import Head
from inspector.widgets.actions import Action, Needs, both


class AttentionActions(ToolActions):
    """Opens the view, and keeps what was chosen in it and what it was told."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.control = AttentionControl(host.controller.client)

    def open(self) -> None:
        """Look at the heads of the selected token."""
        from inspector.tools.attention.screen import AttentionScreen

        self.open_screen(AttentionScreen(self.host, self.control))

    def point(self, *place: int) -> None:
        """Choose a head of a layer."""
        layer, head = place
        self.control.choose(Head(layer - 1, head - 1))


ATTENTION_SCREEN = inside_table(
    "While attention is looked at",
    *walking("Look from another token; the head stays."),
    *both(("attention.later_layer", "attention.earlier_layer"), ("Later layer", "Earlier layer"),
          "Choose a later layer, or an earlier one. In a ranking: the head before, or the next.",
          lambda own, by: own.turn_layer(by), by=(1, -1), worth=8,
          hint=lambda own: "rank" if own.control.order and not own.control.triangle else "layer"),
    *both(("attention.head_before", "attention.next_head"), ("Head before", "Next head"),
          "Choose the head before, or the next. After the last head come mean and maximum.",
          lambda own, by: own.turn_head(by), hint="head", worth=8),
    Action("attention.sort", "Sort",
           "Sort the heads: by place, previous token, same token again (induction), first token, widest.",
           lambda own: own.sort(), hint="sort", worth=5),
    Action("attention.triangle", "All tokens",
           "Show where the head looks from each token; where that is too large, again shows all at once.",
           lambda own: own.turn_triangle(), hint=lambda own: own.next_view, worth=6),
    SCROLLS,
    text="The numbers under the text and the colours are shares of the head's attention, in percent. The view begins "
    "with the head that looks most at a single token, neither the first nor the last two. Where a head looks is no "
    "explanation of what the model says.",
)  # fmt: skip
ATTENTION = Tool(
    "attention",
    "Attention",
    AttentionActions,
    screen=True,
    family="inside",
    actions=(
        Action("attention", "Attention", "Show where each attention head of each layer looks from this token.",
            AttentionActions.open, Needs.DISTRIBUTION | Needs.ENGINE, recorded=lambda own: own.control.rows.any,
            group=LOOK, synonyms="heads saliency where looks attention map pattern"),
    ),
    owners=(ATTENTION_SCREEN,),
)  # fmt: skip
