"""Branching: the keys that take another way through the tree."""

from __future__ import annotations

from inspector.keys import KEYS
from inspector.main.messages import CandidateChosen, CandidateClicked, ToolMessage
from inspector.main.panels.candidates import CandidatesPanel
from inspector.main.tool import BRANCH, Hint, Key, Needs, Tool, ToolActions

NO_CANDIDATES = "No candidates were recorded here. Press end for the tip"


class BranchActions(ToolActions):
    """Takes other tokens."""

    def highlight(self, by: int) -> None:
        """Highlight another candidate."""
        self.host.panel(CandidatesPanel).move(by)  # it says so where another one is, and all is shown again

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

    def branch(self, by: int) -> None:
        """Go to a neighbouring branch."""
        self.host.answer(self.controller.navigation.branch(by))

    def reroll(self) -> None:
        """Draw again."""
        self.host.answer(self.controller.navigation.reroll())

    def undo(self) -> None:
        """Take the last change back."""
        self.host.answer(self.controller.history.undo())

    def redo(self) -> None:
        """Make the change again that was taken back last."""
        self.host.answer(self.controller.history.redo())

    def verify(self) -> None:
        """Compare the cache with a fresh prefill."""
        self.host.answer(self.controller.navigation.verify())


BRANCHING = Tool(
    "branching",
    "Branch",
    BranchActions,
    keys=(
        Key("above", *KEYS["above"], "Candidate above", BRANCH,
            "Highlight the candidate above.", lambda own: own.highlight(-1), Needs.DISTRIBUTION),
        Key("below", *KEYS["below"], "Candidate below", BRANCH,
            "Highlight the candidate below.", lambda own: own.highlight(1), Needs.DISTRIBUTION),
        Key("choose", *KEYS["choose"], "Choose", BRANCH,
            "Take the highlighted candidate at the token that is looked at: a branch of its own, and the "
            "text goes on from there.", BranchActions.choose, Needs.DISTRIBUTION),
        Key("previous_branch", *KEYS["previous_branch"], "Branch before", BRANCH,
            "Go to the branch before at this token.", lambda own: own.branch(-1), Needs.DISTRIBUTION),
        Key("next_branch", *KEYS["next_branch"], "Next branch", BRANCH,
            "Go to the next branch at this token.", lambda own: own.branch(1), Needs.DISTRIBUTION),
        Key("reroll", *KEYS["reroll"], "Draw again", BRANCH,
            "Draw again with the next random number: the token to come, or at an older step a sibling of it.",
            BranchActions.reroll, Needs.DISTRIBUTION | Needs.ENGINE),
        Key("undo", *KEYS["undo"], "Undo", BRANCH,
            "Undo the last deletion, mark, token put in by hand, prompt, draw, hold of interventions, change of "
            "settings or breakpoints; again for the one before.", BranchActions.undo, Needs.DISTRIBUTION),
        Key("redo", *KEYS["redo"], "Redo", BRANCH, "Do again what was undone last.", BranchActions.redo,
            Needs.DISTRIBUTION),
        Key("verify", *KEYS["verify"], "Verify", BRANCH,
            "Recompute the path from nothing and compare it with the KV cache.",
            BranchActions.verify, Needs.DISTRIBUTION | Needs.ENGINE),
    ),
    hints=(Hint(4, ("above", "below"), "candidate", 5), Hint(5, ("choose",), "choose", 10)),
)  # fmt: skip
