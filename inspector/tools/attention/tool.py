"""Attention as a tool: the key that opens it."""

from __future__ import annotations

from inspector.keys import KEYS
from inspector.main.inside.help import SHARED
from inspector.main.tool import LOOK, HelpSection, Host, Key, Needs, Tool, ToolActions
from inspector.tools.attention.control import AttentionControl
from inspector.tools.attention.weights import Head


class AttentionActions(ToolActions):
    """Opens the view, and keeps what was chosen in it and what it was told."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.control = AttentionControl(host.controller.client)

    def open(self) -> None:
        """Look at the heads of the selected token."""
        from inspector.tools.attention.screen import AttentionScreen

        self.controller.client.pause()
        self.host.answer()
        self.host.open(AttentionScreen(self.host, self.control))

    def point(self, *place: int) -> None:
        """Choose a head of a layer."""
        layer, head = place
        self.control.choose(Head(layer - 1, head - 1))


ATTENTION = Tool(
    "attention",
    "Attention",
    AttentionActions,
    screen=True,
    family="inside",
    keys=(
        Key("attention", *KEYS["attention"], "Attention", LOOK,
            "Show where each attention head of each layer looks from this token.",
            AttentionActions.open, Needs.DISTRIBUTION | Needs.ENGINE, recorded=lambda own: own.control.rows.any),
    ),
    help=(
        HelpSection(
            "While attention is looked at",
            (
                ("`←` `→` `home` `end`", "Look from another token; the head stays."),
                ("`↑` `↓`", "Choose a later layer, or an earlier one. In a ranking: the head before, or the next."),
                ("`[` `]` `,` `.`", "Choose the head before, or the next. After the last head come mean and maximum."),
                ("`s`", "Sort the heads: by place, previous token, same token again (induction), first token, widest."),
                ("`a`", "Show where the head looks from each token; where that is too large, again shows all at once."),
                ("`pgup` `pgdn`", "Scroll."),
                *SHARED,
            ),
            "The numbers under the text and the colours are shares of the head's attention, in percent. The view "
            "begins with the head that looks most at a single token, neither the first nor the last two. Where a head "
            "looks is no explanation of what the model says.",
        ),
    ),
)  # fmt: skip
