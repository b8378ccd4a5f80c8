"""Interventions as a tool: its actions, and what it offers of the text's colours."""

from __future__ import annotations

import math

from engine.protocol import ActivationsPatched, Intervention, InterventionKind
from inspector.display import quoted, token_label
from inspector.main.evidence import ExportPart
from inspector.main.tool import Host, OfferedHeat, Tool, ToolActions
from inspector.tools.interventions.control import (
    COUNTERFACTUAL_DIALOG,
    INTERVENTIONS_SCREEN,
    PAIRS_DIALOG,
    PATCHING_SCREEN,
    SwitchControl,
)
from inspector.widgets.actions import Action, Needs


class InterventionsActions(ToolActions):
    """Opens the views, and keeps what was chosen in them and the answers of the engine."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.control = SwitchControl(host.controller.client)
        self._heat: tuple[ActivationsPatched, int, OfferedHeat] | None = None
        """What was offered last, and what it was made of."""

    def heat(self) -> OfferedHeat | None:
        """The share that each token of the map of patching restores, at the layer that was looked at last."""
        read, tree = self.control.latest_patched, self.timeline.tree
        if read is None or read.node not in tree.nodes:
            return None
        layer, _ = self.control.place(read)
        if self._heat is None or self._heat[0] is not read or self._heat[1] != layer:
            item = tree.nodes[read.node]
            what = Intervention(read.part, read.layers[layer]).label
            title = f"what {what} restores after {quoted(token_label(item.text, item.raw))}"
            shares = {
                column.node: max(-1.0, min(1.0, share))
                for column, share in zip(read.columns, read.shares.row(layer), strict=True)
                if math.isfinite(share)
            }
            self._heat = read, layer, OfferedHeat(title, shares, signed=True)
        return self._heat[2]

    def open(self) -> None:
        """Switch off parts of the model at the selected token."""
        from inspector.tools.interventions.screen import InterventionsScreen

        self.open_screen(InterventionsScreen(self.host, self.control))

    def point(self, *place: int) -> None:
        """Choose a layer as a whole; of a layer and a head the head."""
        layer, *head = place
        kind: InterventionKind = "head" if head else "layer"
        self.control.choose(Intervention(kind, layer - 1, head[0] - 1 if head else None))

    def open_patching(self) -> None:
        """Put what another path computed into the selected token's."""
        from inspector.tools.interventions.patching import PatchingScreen

        self.open_screen(PatchingScreen(self.host, self.control))


def _exports() -> tuple[ExportPart, ...]:
    from inspector.tools.interventions.evidence import PATCHED_PART, SWITCHED_PART

    return (SWITCHED_PART, PATCHED_PART)


INTERVENTIONS = Tool(
    "interventions",
    "Switch off",
    InterventionsActions,
    screen=True,
    actions=(
        Action("interventions", "Switch off",
            "Switch off heads, attentions, MLPs or layers at this token: what the model then predicts.",
            InterventionsActions.open, Needs.DISTRIBUTION | Needs.ENGINE, recorded=lambda own: own.control.sweeps.any,
            looks=True,
            synonyms="ablation, ablate, knock-out, disable a head, zero a head, remove a layer, "
            "intervene, scale a head", view="switch off"),
        Action("patching", "Activation patching",
            "Put in what the model computed for another prompt or branch: which layers and positions carry the answer.",
            InterventionsActions.open_patching, Needs.DISTRIBUTION | Needs.ENGINE,
            recorded=lambda own: own.control.patched.any, looks=True,
            synonyms="causal tracing, patch activations, counterfactual prompt, corrupted prompt, restore, "
            "activations", view="patching"),
    ),
    owners=(INTERVENTIONS_SCREEN, PATCHING_SCREEN, COUNTERFACTUAL_DIALOG, PAIRS_DIALOG),
    exports=_exports,
)  # fmt: skip
