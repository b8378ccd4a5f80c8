"""What a step costs, as a tool: the keys that open its pages."""

from __future__ import annotations

from inspector.main.tool import LOOK, Host, Tool, ToolActions
from inspector.tools.costs.control import CostControl
from inspector.widgets.actions import Action, Needs, back, note, screen_table


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

        self.open_screen(ProfileScreen(self.host, self.control, page))


def _page(place: int, name: str) -> Action:
    """The action that shows a page."""
    return Action(f"costs.{name}", name.capitalize(),
                  "Show the parts of a step, layers, roofline, or the KV cache at fewer bits.",
                  lambda own: own.show_page(place))  # fmt: skip


COST_SCREEN = screen_table(
    "While a step is taken apart",
    Action("costs.next_page", "Next page", "Show the next page, or the one before.", lambda own: own.turn(1),
           hint="page", worth=9, place=-2),
    Action("costs.page_before", "Page before", "Show the next page, or the one before.", lambda own: own.turn(-1)),
    *map(_page, range(4), ("parts", "layers", "roofline", "bits")),
    Action("costs.again", "Again", "Measure again; while it is measured, stop.", lambda own: own.measure_again(),
           Needs.ENGINE, hint=lambda own: "stop" if own.control.job.running else "again", worth=6),
    note("up down", "Scroll the page.", "scroll", 5, place=-1),
    note("pageup pagedown", "Scroll the page."),
    back("costs.leave", "Go back; what is measured stops."),
)  # fmt: skip
COSTS = Tool(
    "costs",
    "What a step costs",
    CostActions,
    screen=True,
    actions=(
        Action("profile", "Take a step apart",
            "Measure the parts of a step with fences between them, its layers, and where it stands under the machine's "
            "roofline.", CostActions.parts, Needs.DISTRIBUTION | Needs.ENGINE,
            recorded=lambda own: own.control.profiled is not None or own.control.roofline is not None, group=LOOK,
            synonyms="speed cost costs profiler latency slow time operations roofline flops bandwidth"),
        Action("compare_kv", "Quantized KV",
            "Compare the KV cache with quantized ones: bytes, and how far the logits change.", CostActions.bits,
            Needs.DISTRIBUTION | Needs.ENGINE, recorded=lambda own: own.control.compared is not None, group=LOOK,
            synonyms="kv cache bits memory quantization quantize"),
    ),
    owners=(COST_SCREEN,),
)  # fmt: skip
