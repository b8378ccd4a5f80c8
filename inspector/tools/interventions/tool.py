"""Interventions as a tool: its actions."""

from __future__ import annotations

from inspector.main.tool import Tool
from inspector.tools.interventions.control import (
    COUNTERFACTUAL_DIALOG,
    INTERVENTIONS_SCREEN,
    PAIRS_DIALOG,
    PATCHING_SCREEN,
    InterventionsActions,
)
from inspector.widgets.actions import Action, Needs


def _open(own: InterventionsActions) -> None:
    from inspector.tools.interventions.screen import InterventionsScreen

    own.open_screen(InterventionsScreen(own))


def _open_patching(own: InterventionsActions) -> None:
    from inspector.tools.interventions.patching import PatchingScreen

    own.open_screen(PatchingScreen(own))


INTERVENTIONS = Tool(
    "interventions",
    "Switch off",
    InterventionsActions,
    actions=(
        Action("interventions", "Switch off",
            "Switch off heads, attentions, MLPs or layers at this token: what the model then predicts.",
            _open, Needs.DISTRIBUTION | Needs.ENGINE, recorded=lambda own: own.sweeps.any,
            looks=True,
            synonyms="ablation, ablate, knock-out, disable a head, zero a head, remove a layer, "
            "intervene, scale a head", view="switch off"),
        Action("patching", "Activation patching",
            "Put in what the model computed for another prompt or branch: which layers and positions carry the answer.",
            _open_patching, Needs.DISTRIBUTION | Needs.ENGINE,
            recorded=lambda own: own.patched.any, looks=True,
            synonyms="causal tracing, patch activations, counterfactual prompt, corrupted prompt, restore, "
            "activations", view="patching"),
    ),
    owners=(INTERVENTIONS_SCREEN, PATCHING_SCREEN, COUNTERFACTUAL_DIALOG, PAIRS_DIALOG),
    exports=("inspector.tools.interventions.evidence:SWITCHED_PART",
             "inspector.tools.interventions.evidence:PATCHED_PART"),
)  # fmt: skip
