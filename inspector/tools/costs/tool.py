"""The costs of a step as a tool: the keys that open their pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inspector.main.tool import Tool, ToolActions
from inspector.tools.costs.control import BITS, COST_SCREEN, PARTS, ROOFLINE, CostControl
from inspector.widgets.actions import Action, Needs

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen


class CostActions(ToolActions):
    """Takes the step to come apart."""

    def __init__(self, host: MainScreen) -> None:
        super().__init__(host)
        self.control = CostControl(host.controller)

    def parts(self) -> None:
        """Open the parts of a step, or the roofline where a recording has that alone."""
        alone = self.control.recorded and self.control.profiled is None
        self._open(ROOFLINE if alone else PARTS)

    def bits(self) -> None:
        """Open the KV cache at fewer bits."""
        self._open(BITS)

    def _open(self, page: int) -> None:
        """Open a page; what it needs is measured."""
        from inspector.tools.costs.screen import ProfileScreen

        self.open_screen(ProfileScreen(self.host, self.control, page))


COSTS = Tool(
    "costs",
    "What a step costs",
    CostActions,
    actions=(
        Action("profile", "Take a step apart",
            "Measure the parts of a step with fences between them, its layers, and where it stands under the machine's "
            "roofline.", CostActions.parts, Needs.DISTRIBUTION | Needs.ENGINE,
            recorded=lambda own: own.control.profiled is not None or own.control.roofline is not None, looks=True,
            synonyms="latency, speed, profiler, performance, slow, time of a step, step time, flops, bandwidth, "
            "cost of a step", view="step"),
        Action("compare_kv", "Quantized KV",
            "Compare the KV cache with quantized ones: bytes, and how far the logits change.", CostActions.bits,
            Needs.DISTRIBUTION | Needs.ENGINE, recorded=lambda own: own.control.compared is not None, looks=True,
            synonyms="quantization, quantize the cache, kv quantization, kv bits, cache bits", view="KV bits"),
    ),
    owners=(COST_SCREEN,),
)  # fmt: skip
