"""A training as a tool: the key that opens its screen."""

from __future__ import annotations

from inspector.main.tool import Host, Tool, ToolActions
from inspector.tools.training.control import TRAINING_SCREEN, TrainingControl
from inspector.widgets.actions import Action


class TrainingActions(ToolActions):
    """Trains in a screen of its own."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.control = TrainingControl(host.controller)

    def open(self) -> None:
        """Open the training; one that was paused goes on there."""
        from inspector.tools.training.screen import TrainingScreen

        self.open_screen(TrainingScreen(self.host, self.control))

    def point(self, *place: int) -> None:
        """Show the recorded training up to a step."""
        self.control.show_recorded(place[0])


TRAINING = Tool(
    "training",
    "Training",
    TrainingActions,
    actions=(
        Action("training", "Watch a model learn",
            "Train a small model from random weights and watch what it learns: loss, gradients, candidates, its texts.",
            TrainingActions.open, looks=True, view="train",
            synonyms="train, learn, learning, loss, gradient, optimizer, backpropagation, fine-tune, checkpoint, "
            "overfitting, held out"),
    ),
    owners=(TRAINING_SCREEN,),
)  # fmt: skip
