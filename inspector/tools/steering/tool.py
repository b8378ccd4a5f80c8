"""Steering as a tool: the key that opens its screen."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from inspector.main.tool import Tool, ToolActions
from inspector.tools.steering.control import DIRECTION_DIALOG, STEERING_SCREEN, SteeringControl
from inspector.widgets.actions import Action, Needs

if TYPE_CHECKING:
    from inspector.config.directions import Steering
    from inspector.main.screen import MainScreen


class SteeringActions(ToolActions):
    """Opens the view, and keeps the direction, how it is added, and the answers of the engine.

    Args:
        host: The main screen.
        begin: A direction that the first prompt's completion is steered by; None for none.
    """

    def __init__(self, host: MainScreen, begin: Steering | None = None) -> None:
        super().__init__(host)
        self.control = SteeringControl(host.controller, begin)

    def open(self) -> None:
        """Steer at the selected token."""
        from inspector.tools.steering.screen import SteeringScreen

        self.open_screen(SteeringScreen(self.host, self.control))

    def point(self, *place: int) -> None:
        """Choose a layer, 0 for the present one; and a strength."""
        layer, *strength = place
        self.control.layer = layer - 1 if layer else self.control.layer
        self.control.strength = float(strength[0]) if strength else self.control.strength


def steered(begin: Steering | None) -> Tool:
    """The tool of a program whose first completion is steered.

    Args:
        begin: By what; None for by nothing.
    """
    make: Callable[[MainScreen], ToolActions] = lambda host: SteeringActions(host, begin)  # noqa: E731
    return Tool(
        "steering",
        "Steering",
        make,
        actions=(
            Action("steering", "Steering",
                "Add a direction to the residual stream at this token, and compare what the model then predicts with "
                "random directions.",
                SteeringActions.open, Needs.DISTRIBUTION | Needs.ENGINE, recorded=lambda own: own.control.swept.any,
                looks=True,
                synonyms="steer, activation addition, steering vector, control vector, concept direction, contrast "
                "vector, representation engineering, push the model", view="steering"),
        ),
        owners=(STEERING_SCREEN, DIRECTION_DIALOG),
        exports=("inspector.tools.steering.evidence:STEERED_PART",),
    )  # fmt: skip


STEERING = steered(None)
