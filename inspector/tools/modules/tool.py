"""The inside of the model as a tool: its keys."""

from __future__ import annotations

from engine.protocol import NEITHER
from inspector.main.tool import Tool
from inspector.tools.modules.control import EXPERTS_SCREEN, MODULES_SCREEN, ModulesActions
from inspector.widgets.actions import Action, Lack, Needs


def _open(own: ModulesActions) -> None:
    from inspector.tools.modules.screen import ModulesScreen

    own.open_screen(ModulesScreen(own))


def _open_experts(own: ModulesActions) -> None:
    from inspector.tools.modules.screen import ExpertsScreen

    own.open_screen(ExpertsScreen(own))


MODULES = Tool(
    "modules",
    "Inside the model",
    ModulesActions,
    actions=(
        Action("modules", "Modules",
            "Show what the model is made of: every module on a token's way, with shapes, parameters and bytes.",
            _open, Needs.MODEL | Needs.ENGINE, recorded=lambda own: own.modules.any, looks=True,
            synonyms="architecture, residual stream, layers, network, diagram, weights, model graph, shapes",
            view="map"),
        Action("experts", "Experts and states",
            "Show which experts the token went through, with their weights, and what recurrent layers keep.",
            _open_experts, Needs.DISTRIBUTION | Needs.ENGINE, recorded=lambda own: own.experts.any,
            looks=True, lacks=Lack("chooses_or_keeps", f"{NEITHER} {{Modules}} shows its modules"),
            synonyms="moe, mixture of experts, router, routing, mamba, ssm, recurrent state",
            view="experts"),
    ),
    owners=(MODULES_SCREEN, EXPERTS_SCREEN),
    exports=("inspector.tools.modules.lines:MODULES_PART", "inspector.tools.modules.lines:EXPERTS_PART"),
)  # fmt: skip
