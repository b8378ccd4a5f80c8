"""Attention as a tool: its keys, and what opens it."""

from __future__ import annotations

from inspector.documents.attention import Head
from inspector.main.evidence import ExportPart
from inspector.main.inside.keys import NO_ATTENTION
from inspector.main.tool import Host, OfferedHeat, Tool, ToolActions
from inspector.tools.attention.control import ATTENTION_SCREEN, AttentionControl
from inspector.widgets.actions import Action, Needs


class AttentionActions(ToolActions):
    """Opens the view, and keeps the chosen head and the answers of the engine."""

    def __init__(self, host: Host) -> None:
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


def _exports() -> tuple[ExportPart, ...]:
    from inspector.tools.attention.evidence import ATTENTION_PART

    return (ATTENTION_PART,)


ATTENTION = Tool(
    "attention",
    "Attention",
    AttentionActions,
    screen=True,
    actions=(
        Action("attention", "Attention", "Show where each attention head of each layer looks from this token.",
            AttentionActions.open, Needs.DISTRIBUTION | Needs.ENGINE, recorded=lambda own: own.control.rows.any,
            looks=True, lacks=NO_ATTENTION,
            synonyms="attention map, attention head, attention heads, attention weights, attention pattern, "
            "which words the model looks at, induction head, "
            "previous-token head, duplicate-token head", view="attention"),
    ),
    owners=(ATTENTION_SCREEN,),
    exports=_exports,
)  # fmt: skip
