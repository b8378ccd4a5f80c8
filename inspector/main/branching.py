"""Branching: the actions that take another way through the tree."""

from __future__ import annotations

from textual import on

from inspector.main.acting import PanelScreen
from inspector.main.panels.candidates import CandidatesPanel
from inspector.tools.sampler.panel import SamplerPanel


class Branching(PanelScreen):
    """Takes other tokens."""

    def action_choose(self) -> None:
        """Take the highlighted candidate where the person looks."""
        candidate = self.candidates.candidate
        if candidate is None:
            self.answer("No candidates were recorded here. Press end for the tip")
        else:
            self.answer(self.controller.choose(candidate.id))

    @on(CandidatesPanel.CandidateChosen)
    @on(SamplerPanel.CandidateChosen)
    def _candidate_chosen(
        self, message: CandidatesPanel.CandidateChosen | SamplerPanel.CandidateChosen
    ) -> None:
        if self.controller.stepping:
            self.answer(self.controller.choose(message.id))

    @on(SamplerPanel.CandidateClicked)
    def _candidate_clicked(self, message: SamplerPanel.CandidateClicked) -> None:
        self.candidates.highlight(message.id)
        self.changed()

    def action_take_back(self) -> None:
        """Take back the last token."""
        self.answer(self.controller.take_back())

    def action_branch(self, by: int) -> None:
        """Go to a neighbouring branch."""
        self.answer(self.controller.branch(by))

    def action_reroll(self) -> None:
        """Draw again."""
        self.answer(self.controller.reroll())

    def action_verify(self) -> None:
        """Compare the cache with a fresh prefill."""
        self.answer(self.controller.verify())
