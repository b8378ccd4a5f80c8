"""Attention as a tool: its keys, and what opens it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inspector.documents.attention import Head
from inspector.main.tool import NO_ATTENTION, OfferedHeat, Tool, ToolActions
from inspector.tools.attention.control import ATTENTION_SCREEN, AttentionControl
from inspector.widgets.actions import Action, Needs

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen


class AttentionActions(ToolActions):
    """Opens the view, and keeps the chosen head and the answers of the engine."""

    def __init__(self, host: MainScreen) -> None:
        super().__init__(host)
        self.control = AttentionControl(host.controller.client)

    def open(self) -> None:
        """Look at the heads of the selected token."""
        from inspector.tools.attention.screen import AttentionScreen

        self.open_screen(AttentionScreen(self.host, self.control))

    def heat(self) -> OfferedHeat | None:
        """Where the chosen head looks."""
        return self.control.heat(self.timeline)

    def point(self, *place: int) -> None:
        """Choose a head of a layer; of a layer alone the head that is chosen in another."""
        layer, *head = place
        self.control.choose(Head(layer - 1, head[0] - 1 if head else self.control.head))


ATTENTION = Tool(
    "attention",
    "Attention",
    AttentionActions,
    actions=(
        Action("attention", "Attention", "Show where each attention head of each layer looks from this token.",
            AttentionActions.open, Needs.DISTRIBUTION | Needs.ENGINE, recorded=lambda own: own.control.rows.any,
            looks=True, lacks=NO_ATTENTION,
            synonyms="attention map, attention head, attention heads, attention weights, attention pattern, "
            "which words the model looks at, induction head, "
            "previous-token head, duplicate-token head", view="attention"),
    ),
    owners=(ATTENTION_SCREEN,),
    exports=("inspector.tools.attention.evidence:ATTENTION_PART",),
)  # fmt: skip
