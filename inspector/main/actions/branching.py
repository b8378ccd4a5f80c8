"""Branching: the keys that take another way through the tree."""

from __future__ import annotations

from inspector.main.panels.candidates import CandidatesPanel
from inspector.main.tool import BRANCH, CandidateChosen, CandidateClicked, Tool, ToolActions, ToolMessage
from inspector.widgets.actions import Action, Needs

NO_CANDIDATES = "No candidates were recorded here. Press end for the tip"


class BranchActions(ToolActions):
    """Takes other tokens."""

    def hear(self, message: ToolMessage) -> None:
        """Highlight the candidate that was clicked, or take it."""
        if isinstance(message, CandidateClicked):
            self.host.panel(CandidatesPanel).highlight(message.id)
        elif isinstance(message, CandidateChosen) and self.controller.stepping:
            self.host.answer(self.controller.navigation.choose(message.id))

    def choose(self) -> None:
        """Take the highlighted candidate where the person looks."""
        candidate = self.host.candidate
        if candidate is None:
            self.host.answer(NO_CANDIDATES)
        else:
            self.host.answer(self.controller.navigation.choose(candidate.id))


BRANCHING = Tool(
    "branching",
    "Branch",
    BranchActions,
    actions=(
        Action("above", "Candidate above", "Highlight the candidate above.",
            lambda own: own.host.panel(CandidatesPanel).move(-1), Needs.DISTRIBUTION, group=BRANCH, hint="candidate",
            worth=5, place=40),
        Action("below", "Candidate below", "Highlight the candidate below.",
            lambda own: own.host.panel(CandidatesPanel).move(1), Needs.DISTRIBUTION, group=BRANCH, hint="candidate",
            worth=5, place=40),
        Action("choose", "Choose",
            "Take the highlighted candidate at the token that is looked at: a branch of its own, and the "
            "text goes on from there.", BranchActions.choose, Needs.DISTRIBUTION, group=BRANCH,
            synonyms="take pick another candidate branch fork", hint="choose", worth=10, place=50),
        Action("previous_branch", "Branch before", "Go to the branch before at this token.",
            lambda own: own.host.answer(own.controller.navigation.branch(-1)), Needs.DISTRIBUTION, group=BRANCH),
        Action("next_branch", "Next branch", "Go to the next branch at this token.",
            lambda own: own.host.answer(own.controller.navigation.branch(1)), Needs.DISTRIBUTION, group=BRANCH),
        Action("reroll", "Draw again",
            "Draw again with the next random number: the token to come, or at an older step a sibling of it.",
            lambda own: own.host.answer(own.controller.navigation.reroll()), Needs.DISTRIBUTION | Needs.ENGINE,
            group=BRANCH, synonyms="redraw resample random again dice seed"),
        Action("undo", "Undo",
            "Undo the last deletion, mark, token put in by hand, prompt, draw, hold of interventions, change of "
            "settings or breakpoints; again for the one before.",
            lambda own: own.host.answer(own.controller.history.undo()), Needs.DISTRIBUTION, group=BRANCH,
            synonyms="revert back"),
        Action("redo", "Redo", "Do again what was undone last.",
            lambda own: own.host.answer(own.controller.history.redo()), Needs.DISTRIBUTION, group=BRANCH,
            synonyms="again forward"),
        Action("verify", "Verify", "Recompute the path from nothing and compare it with the KV cache.",
            lambda own: own.host.answer(own.controller.navigation.verify()), Needs.DISTRIBUTION | Needs.ENGINE,
            group=BRANCH, synonyms="check recompute correct"),
    ),
)  # fmt: skip
