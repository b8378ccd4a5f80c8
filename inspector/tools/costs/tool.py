"""What a step costs, as a tool: the keys that open its pages."""

from __future__ import annotations

from inspector.main.tool import LOOK, HelpSection, Host, Key, Needs, Tool, ToolActions
from inspector.tools.costs.control import CostControl
from inspector.tools.costs.screen import BITS, PARTS, ProfileScreen


class CostActions(ToolActions):
    """Takes the step to come apart."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.control = CostControl(host.controller)

    def open(self, page: int) -> None:
        """Open a page; what it needs is measured."""
        self.controller.client.pause()
        self.host.answer()
        self.host.open(ProfileScreen(self.host, self.control, page))


COSTS = Tool(
    "costs",
    "What a step costs",
    CostActions,
    keys=(
        Key("profile", "P", "P", "Take a step apart", LOOK,
            "Measure the parts of a step with fences between them, its layers, and where it stands under the machine's "
            "roofline.", lambda own: own.open(PARTS), Needs.DISTRIBUTION | Needs.ENGINE),
        Key("compare_kv", "Q", "Q", "Quantized KV", LOOK,
            "Compare the KV cache with quantized ones: bytes, and how far the logits change.",
            lambda own: own.open(BITS), Needs.DISTRIBUTION | Needs.ENGINE),
    ),
    help=(
        HelpSection(
            "While a step is taken apart",
            (
                ("`tab` `←` `→` `shift+tab`", "Show the next page, or the one before."),
                ("`1` to `4` `Q`", "Show the parts of a step, layers, roofline, or the KV cache at fewer bits."),
                ("`r` `space`", "Measure again; while it is measured, stop."),
                ("`↑` `↓` `pgup` `pgdn`", "Scroll the page."),
                ("`T`", "Switch between the dark and the light theme."),
                ("`esc` `P` `q`", "Go back; what is measured stops."),
            ),
        ),
    ),
)  # fmt: skip
