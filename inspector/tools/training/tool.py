"""Training as a tool: the key that opens its screen."""

from __future__ import annotations

from inspector.main.tool import Tool
from inspector.tools.training.control import TRAINING_SCREEN, TrainingControl
from inspector.widgets.actions import Action


class TrainingActions(TrainingControl):
    """Trains in a screen of its own."""

    def open(self) -> None:
        """Open the training; a paused one can be continued there."""
        from inspector.tools.training.screen import TrainingScreen

        self.open_screen(TrainingScreen(self.host, self))


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
