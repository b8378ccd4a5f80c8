"""What is inside the model, as a tool."""

from __future__ import annotations

from engine.protocol import ExpertsRead, ModelModules
from inspector.keys import KEYS
from inspector.main.tool import LOOK, HelpSection, Host, Key, Needs, Tool, ToolActions
from inspector.session.requests import Replies


class ModulesActions(ToolActions):
    """Opens the pages, and keeps what they were told."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        client = host.controller.client
        self.modules = Replies(client, ModelModules, lambda answer: (answer.model, answer.bytes), nodes=False)
        self.experts = Replies(client, ExpertsRead, lambda answer: answer.node)

    def open(self) -> None:
        """Show the modules."""
        from inspector.tools.modules.screen import ModulesScreen

        self.controller.client.pause()
        self.host.answer()
        self.host.open(ModulesScreen(self.host, self.modules))

    def open_experts(self) -> None:
        """Show what the selected token chose."""
        from inspector.tools.modules.experts import ExpertsScreen

        self.controller.client.pause()
        self.host.answer()
        self.host.open(ExpertsScreen(self.host, self.experts))


MODULES = Tool(
    "modules",
    "Inside the model",
    ModulesActions,
    screen=True,
    family="inside",
    keys=(
        Key("modules", *KEYS["modules"], "Modules", LOOK,
            "Show what the model is made of: every module on a token's way, with shapes, parameters and bytes.",
            ModulesActions.open, Needs.MODEL | Needs.ENGINE, recorded=lambda own: own.modules.any),
        Key("experts", *KEYS["experts"], "Experts and states", LOOK,
            "Show which experts the token went through, with their weights, and what recurrent layers keep.",
            ModulesActions.open_experts, Needs.DISTRIBUTION | Needs.ENGINE, recorded=lambda own: own.experts.any),
    ),
    help=(
        HelpSection(
            "Inside the model",
            (
                ("`↑` `↓` `home` `end` `pgup` `pgdn`", "Go from module to module."),
                ("`⏎`", "Show what can be seen of it: of attention where it looks, of a layer what it would predict."),
                ("`→` `←`", "Unfold layers that are alike, then one of them; fold them again."),
                ("`e`", "Show which experts the token took, and what recurrent layers keep."),
                ("`tab` `shift+tab`", "Show the next view inside the model, or the one before."),
                ("`T`", "Switch between the dark and the light theme."),
                ("`esc` `q`", "Go back."),
            ),
            "`│` is the residual stream, `╮` a branch off it, `⊕` where its result is added. Of folded layers the "
            "numbers are those of all of them together. In the page of experts `←` and `→` go to other tokens.",
        ),
    ),
)  # fmt: skip
