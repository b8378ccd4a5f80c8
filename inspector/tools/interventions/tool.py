"""Interventions as a tool."""

from __future__ import annotations

from dataclasses import replace

from inspector.main.inside.keys import SCROLLS, inside_table, walking
from inspector.main.tool import LOOK, Host, Tool, ToolActions
from inspector.tools.interventions.choices import SwitchControl
from inspector.widgets.actions import Action, Needs, both


class InterventionsActions(ToolActions):
    """Opens the views, and keeps what was chosen in them and what they were told."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.control = SwitchControl(host.controller.client)

    def open(self) -> None:
        """Switch off parts of the model at the selected token."""
        from inspector.tools.interventions.screen import InterventionsScreen

        self.open_screen(InterventionsScreen(self.host, self.control))

    def open_patching(self) -> None:
        """Put what another path computed into the selected token's."""
        from inspector.tools.interventions.patch_screen import PatchingScreen

        self.open_screen(PatchingScreen(self.host, self.control))


INTERVENTIONS_SCREEN = inside_table(
    "While parts are switched off",
    *both(("interventions.later_layer", "interventions.earlier_layer"), ("Later layer", "Earlier layer"),
          "Choose a unit of a later layer, or of an earlier one.", lambda own, by: own.turn_layer(by), by=(1, -1),
          hint="unit", worth=8),
    *both(("interventions.unit_before", "interventions.next_unit"), ("Unit before", "Next unit"),
          "Choose the unit before in the layer, or the next: heads, attention, MLP, layer.",
          lambda own, by: own.turn_column(by), hint="unit", worth=8),
    Action("interventions.heads", "Heads",
           "Of a large model: switch off each head of this layer, since all of them take minutes.",
           lambda own: own.switch_off_heads(), worth=8,
           hint=lambda own: "" if own.lacks_heads is None else f"heads of L{own.lacks_heads + 1}"),
    Action("interventions.together", "Together",
           "Switch this unit off together with others (`×`), or no more; `{interventions.clear}` clears them all.",
           lambda own: own.turn_together(), hint="together", worth=7),
    Action("interventions.clear", "Clear", "Switch off nothing together any more.", lambda own: own.clear(),
           listed=False),
    *both(("interventions.less", "interventions.more"), ("Less", "More"), "Scale it: off, half, twice.",
          lambda own, by: own.turn_scale(by), hint="scale", worth=3),
    Action("interventions.scope", "Scope", "Change this token's forward alone, or let the whole context run anew.",
           lambda own: own.change_scope(), hint=lambda own: own.scope, worth=6),
    Action("interventions.measure", "Measure",
           "Colour by KL (how far all probabilities move), or by what the followed token's logit does.",
           lambda own: own.control.turn_measure(), hint=lambda own: f"colour: {own.control.measure.name}", worth=4,
           place=1),
    Action("interventions.hold", "Hold", "Hold: go on generating with it, in a branch that begins with this token.",
           lambda own: own.hold(), hint="hold", worth=7),
    Action("interventions.release", "Release",
           "Release: leave such a branch for the model's own token that it was made from.", lambda own: own.release(),
           hint=lambda own: "release" if own.timeline.under else "", worth=7),
    Action("interventions.patch", "Patch", "Go to the page of activation patching, and back from it.",
           lambda own: own.leave_for("patching"), hint="patch", worth=5, place=2),
    *walking(),
    replace(SCROLLS, help="Scroll the page."),
    text="The map shows what happens where one unit alone is switched off at this token. Under it stand the candidates "
    "with and without what is chosen.",
)  # fmt: skip
_MOVE = "Look at another layer, or at another position."
PATCHING_SCREEN = inside_table(
    "In activation patching",
    *both(("patching.later_layer", "patching.earlier_layer"), ("Later layer", "Earlier layer"), _MOVE,
          lambda own, by: own.move_cursor(by, 0), by=(1, -1), hint="layer", worth=7),
    *both(("patching.position_before", "patching.next_position"), ("Position before", "Next position"), _MOVE,
          lambda own, by: own.move_cursor(0, by), hint="position", worth=7),
    Action("patching.source", "Source",
           "Take the activations from another prompt or branch; it must have as many tokens.",
           lambda own: own.change_source(), hint=lambda own: "source" if len(own.sources) > 1 else "", worth=7),
    Action("patching.part", "Part",
           "Put in whole layers (the stream after each), or what their attention or MLP returns.",
           lambda own: own.change_part(), hint=lambda own: f"put in: {own.control.part}", worth=6),
    Action("patching.units", "Switch off", "Go to the map of what is switched off.",
           lambda own: own.leave_for("interventions"), hint="switch off", worth=5),
    *walking(""),
    shared=False,
)  # fmt: skip
INTERVENTIONS = Tool(
    "interventions",
    "Switch off",
    InterventionsActions,
    screen=True,
    family="inside",
    actions=(
        Action("interventions", "Switch off",
            "Switch off heads, attentions, MLPs or layers at this token: what the model then predicts.",
            InterventionsActions.open, Needs.DISTRIBUTION | Needs.ENGINE, recorded=lambda own: own.control.sweeps.any,
            group=LOOK,
            synonyms="ablation ablate knock out knockout knock disable zero head layer mlp neuron intervene steering"),
        Action("patching", "Activation patching",
            "Put in what the model computed for another prompt or branch: which layers and positions carry the answer.",
            InterventionsActions.open_patching, Needs.DISTRIBUTION | Needs.ENGINE,
            recorded=lambda own: own.control.patched.any, group=LOOK,
            synonyms="causal tracing patch restore intervention"),
    ),
    owners=(INTERVENTIONS_SCREEN, PATCHING_SCREEN),
)  # fmt: skip
