"""Looking around: the actions that ask the engine for nothing but dropped logits."""

from __future__ import annotations

from textual import on

from inspector.main.acting import PanelScreen
from inspector.main.dialogs.jump import JumpDialog
from inspector.main.panels.steps import StepsPanel
from inspector.main.panels.text import TextPanel
from inspector.scales import METRICS


class Looking(PanelScreen):
    """Looks at what is there."""

    def action_walk(self, by: int) -> None:
        """Look at a token further back or ahead."""
        self.controller.walk(by)
        self.answer()

    def action_first(self) -> None:
        """Look at the first token of the completion, then of the prompt."""
        self.controller.first()
        self.answer()

    def action_tip(self) -> None:
        """Follow the tip."""
        self.controller.tip()
        self.answer()

    def action_jump(self) -> None:
        """Ask for a step and look at it."""
        steps = self.controller.steps_range()
        if steps is None:
            self.answer("No step was taken yet. Press space to take one")
        else:
            self.app.push_screen(JumpDialog(*steps), self._jump)

    def _jump(self, number: int | None) -> None:
        if number is not None:
            self.controller.jump(number)
            self.answer()

    def action_highlight(self, by: int) -> None:
        """Highlight another candidate."""
        self.candidates.move(by)
        self.changed()

    def action_metric(self, by: int) -> None:
        """Colour text and steps by another metric."""
        metric = METRICS[(METRICS.index(self.text.metric) + by) % len(METRICS)]
        self.text.metric = self.steps.metric = metric
        self.answer("Colour off" if metric == "off" else f"Colour by {metric}")

    @on(TextPanel.SlotSelected)
    @on(StepsPanel.SlotSelected)
    def _slot_selected(self, message: TextPanel.SlotSelected | StepsPanel.SlotSelected) -> None:
        self.controller.timeline.select(message.slot)
        self.answer()

    def action_recall(self) -> None:
        """Have dropped logits computed again."""
        self.answer(self.controller.recall())
