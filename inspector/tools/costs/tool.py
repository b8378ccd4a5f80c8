"""What a step costs, as a tool: the keys that open its pages."""

from __future__ import annotations

from inspector.keys import KEYS
from inspector.main.tool import LOOK, HelpSection, Host, Key, Needs, Tool, ToolActions
from inspector.tools.costs.control import CostControl


class CostActions(ToolActions):
    """Takes the step to come apart."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.control = CostControl(host.controller)

    def parts(self) -> None:
        """Open the parts of a step, or the roofline where a recording has that alone."""
        from inspector.tools.costs.screen import PARTS, ROOFLINE

        alone = self.control.recorded and self.control.profiled is None
        self.open(ROOFLINE if alone else PARTS)

    def bits(self) -> None:
        """Open the KV cache at fewer bits."""
        from inspector.tools.costs.screen import BITS

        self.open(BITS)

    def open(self, page: int) -> None:
        """Open a page; what it needs is measured."""
        from inspector.tools.costs.screen import ProfileScreen

        self.controller.client.pause()
        self.host.answer()
        self.host.open(ProfileScreen(self.host, self.control, page))


COSTS = Tool(
    "costs",
    "What a step costs",
    CostActions,
    screen=True,
    keys=(
        Key("profile", *KEYS["profile"], "Take a step apart", LOOK,
            "Measure the parts of a step with fences between them, its layers, and where it stands under the machine's "
            "roofline.", CostActions.parts, Needs.DISTRIBUTION | Needs.ENGINE,
            recorded=lambda own: own.control.profiled is not None or own.control.roofline is not None),
        Key("compare_kv", *KEYS["compare_kv"], "Quantized KV", LOOK,
            "Compare the KV cache with quantized ones: bytes, and how far the logits change.",
            CostActions.bits, Needs.DISTRIBUTION | Needs.ENGINE,
            recorded=lambda own: own.control.compared is not None),
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
