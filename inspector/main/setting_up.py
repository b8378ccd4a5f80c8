"""Setting up: the actions that ask for a prompt, settings or a model."""

from __future__ import annotations

from engine.settings import LoadSettings
from inspector.main.acting import PanelScreen
from inspector.main.dialogs.facts import FactsDialog
from inspector.main.dialogs.model import ModelDialog
from inspector.main.dialogs.prompt import Draft, PromptDialog
from inspector.session.controller import Controller
from inspector.session.prefill import Prompt
from inspector.tools.sampler.what_if import WhatIfFlow


class SettingUp(PanelScreen):
    """Asks for what the engine works on."""

    def __init__(self, controller: Controller) -> None:
        super().__init__(controller)
        self.draft = controller.prompt
        """What stands in the prompt dialog when it is opened."""
        self.attempt = WhatIfFlow(controller, self.answer)
        """Sampling settings that are tried in a dialog beside the sampler."""

    def action_prompt(self) -> None:
        """Ask for a prompt."""
        timeline = self.controller.timeline
        self.app.push_screen(PromptDialog(self.draft, timeline.facts, timeline.prompt), self._prompted)

    def _prompted(self, draft: Draft | None) -> None:
        if draft is not None:
            self.draft = draft.prompt
            if draft.submitted:
                self._give(draft.prompt)

    def _give(self, prompt: Prompt) -> None:
        self.controller.give(prompt)
        self.answer()

    def action_sampling(self) -> None:
        """Ask for sampling settings, and show what they would have picked as they are typed."""
        self.app.push_screen(self.attempt.dialog(), self.attempt.end)
        self.answer()

    def action_open(self) -> None:
        """Ask for a model."""
        self.app.push_screen(ModelDialog(self.controller.load), self._open)

    def _open(self, load: LoadSettings | None) -> None:
        if load is not None:
            self.controller.open(load)
            self.answer()

    def action_facts(self) -> None:
        """Show the facts about the model."""
        if (facts := self.controller.timeline.facts) is not None:
            self.app.push_screen(FactsDialog(facts))
