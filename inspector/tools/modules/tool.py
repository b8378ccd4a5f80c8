"""The inside of the model as a tool: its keys, and the answers of the engine."""

from __future__ import annotations

from engine.protocol import NEITHER, ExpertsRead, ModelModules
from inspector.main.evidence import ExportPart
from inspector.main.tool import Host, Tool, ToolActions
from inspector.session.requests import Replies
from inspector.tools.modules.control import EXPERTS_SCREEN, MODULES_SCREEN
from inspector.widgets.actions import Action, Lack, Needs


class ModulesActions(ToolActions):
    """Opens the pages, and keeps the answers of the engine."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        client = host.controller.client
        self.modules = Replies(client, ModelModules)
        self.experts = Replies(client, ExpertsRead)
        self.layer: int | None = None
        """The layer that is marked among the experts and states, from 0; None for none."""

    def open(self) -> None:
        """Show the modules."""
        from inspector.tools.modules.screen import ModulesScreen

        self.open_screen(ModulesScreen(self.host, self.modules))

    def open_experts(self) -> None:
        """Show what the selected token chose."""
        from inspector.tools.modules.screen import ExpertsScreen

        self.open_screen(ExpertsScreen(self.host, self.experts, self.layer))

    def point(self, *place: int) -> None:
        """Mark a layer among the experts and states."""
        self.layer = place[0] - 1


def _exports() -> tuple[ExportPart, ...]:
    from inspector.tools.modules.evidence import EXPERTS_PART, MODULES_PART

    return (MODULES_PART, EXPERTS_PART)


MODULES = Tool(
    "modules",
    "Inside the model",
    ModulesActions,
    screen=True,
    actions=(
        Action("modules", "Modules",
            "Show what the model is made of: every module on a token's way, with shapes, parameters and bytes.",
            ModulesActions.open, Needs.MODEL | Needs.ENGINE, recorded=lambda own: own.modules.any, looks=True,
            synonyms="architecture, residual stream, layers, network, diagram, weights, model graph, shapes",
            view="map"),
        Action("experts", "Experts and states",
            "Show which experts the token went through, with their weights, and what recurrent layers keep.",
            ModulesActions.open_experts, Needs.DISTRIBUTION | Needs.ENGINE, recorded=lambda own: own.experts.any,
            looks=True, lacks=Lack("chooses_or_keeps", f"{NEITHER} {{Modules}} shows its modules"),
            synonyms="moe, mixture of experts, router, routing, mamba, ssm, recurrent state",
            view="experts"),
    ),
    owners=(MODULES_SCREEN, EXPERTS_SCREEN),
    exports=_exports,
)  # fmt: skip
