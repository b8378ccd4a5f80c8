"""Interventions as a tool."""

from __future__ import annotations

from inspector.keys import KEYS
from inspector.main.inside.help import SHARED, WALK
from inspector.main.tool import LOOK, HelpSection, Host, Key, Needs, Tool, ToolActions
from inspector.tools.interventions.choices import SwitchControl


class InterventionsActions(ToolActions):
    """Opens the views, and keeps what was chosen in them and what they were told."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.control = SwitchControl(host.controller.client)

    def open(self) -> None:
        """Switch off parts of the model at the selected token."""
        from inspector.tools.interventions.screen import InterventionsScreen

        self.controller.client.pause()
        self.host.answer()
        self.host.open(InterventionsScreen(self.host, self.control))

    def open_patching(self) -> None:
        """Put what another path computed into the selected token's."""
        from inspector.tools.interventions.patch_screen import PatchingScreen

        self.controller.client.pause()
        self.host.answer()
        self.host.open(PatchingScreen(self.host, self.control))


INTERVENTIONS = Tool(
    "interventions",
    "Switch off",
    InterventionsActions,
    screen=True,
    family="inside",
    keys=(
        Key("interventions", *KEYS["interventions"], "Switch off", LOOK,
            "Switch off heads, attentions, MLPs or layers at this token: what the model then predicts.",
            InterventionsActions.open, Needs.DISTRIBUTION | Needs.ENGINE,
            recorded=lambda own: own.control.sweeps.any),
        Key("patching", *KEYS["patching"], "Activation patching", LOOK,
            "Put in what the model computed for another prompt or branch: which layers and positions carry the answer.",
            InterventionsActions.open_patching, Needs.DISTRIBUTION | Needs.ENGINE,
            recorded=lambda own: own.control.patched.any),
    ),
    help=(
        HelpSection(
            "While parts are switched off",
            (
                ("`↑` `↓`", "Choose a unit of a later layer, or of an earlier one."),
                ("`[` `]` `,` `.`", "Choose the unit before in the layer, or the next: heads, attention, MLP, layer."),
                ("`⏎`", "Of a large model: switch off each head of this layer, since all of them take minutes."),
                ("`space`", "Switch this unit off together with others (`×`), or no more; `c` clears them all."),
                ("`-` `+`", "Scale it: off, half, twice."),
                ("`s`", "Change this token's forward alone, or let the whole context run anew."),
                ("`m`", "Colour by KL (how far all probabilities move), or by what the followed token's logit does."),
                ("`h`", "Hold: go on generating with it, in a branch that begins with this token."),
                ("`r`", "Release: leave such a branch for the model's own token that it was made from."),
                ("`p`", "Go to the page of activation patching, and back from it."),
                WALK,
                ("`pgup` `pgdn`", "Scroll the page."),
                *SHARED,
            ),
            "The map shows what happens where one unit alone is switched off at this token. Under it stand the "
            "candidates with and without what is chosen.",
        ),
        HelpSection(
            "In activation patching",
            (
                ("`↑` `↓` `[` `]`", "Look at another layer, or at another position."),
                ("`o`", "Take the activations from another prompt or branch; it must have as many tokens."),
                ("`m`", "Put in whole layers (the stream after each), or what their attention or MLP returns."),
                ("`p`", "Go to the map of what is switched off."),
            ),
        ),
    ),
)  # fmt: skip
