"""Gradients as a tool: the key that opens their screen, and the text's colours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.protocol import GradientsRead
from inspector.documents.gradients import asked_words, shares_of
from inspector.main.tool import OfferedHeat, Tool, ToolActions
from inspector.session.requests import Replies
from inspector.tools.gradients.control import GRADIENTS_SCREEN, GradientChoices
from inspector.widgets.actions import Action, Needs

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen


class GradientsActions(ToolActions):
    """Opens the view, and keeps what was chosen in it and the answers of the engine."""

    def __init__(self, host: MainScreen) -> None:
        super().__init__(host)
        self.answers = Replies(host.controller.client, GradientsRead)
        self.choices = GradientChoices()
        self._heat: tuple[GradientsRead, OfferedHeat] | None = None
        """What was offered last, and what it was made of."""

    def heat(self) -> OfferedHeat | None:
        """The share of each token in the logit, or the difference, that was looked at last."""
        read = self.answers.newest()
        if read is None or read.node not in self.timeline.tree.nodes:
            return None
        if self._heat is None or self._heat[0] is not read:
            path = self.timeline.tree.path(read.node)
            shares = {path[each.place].node: each.share for each in shares_of(read, path)}
            self._heat = read, OfferedHeat(f"gradients of {asked_words(read)}", shares, signed=True)
        return self._heat[1]

    def open(self) -> None:
        """Look at a logit after the selected token: against the highlighted candidate, where that is another one."""
        from inspector.tools.gradients.screen import GradientsScreen

        choices = self.choices.begin(self.timeline, self.host.candidate)
        self.open_screen(GradientsScreen(self.host, self.answers, choices))


GRADIENTS = Tool(
    "gradients",
    "Gradients",
    GradientsActions,
    actions=(
        Action("gradients", "Gradients",
            "Show which tokens of the context a logit hangs on, by its gradient, and what the shares leave over.",
            GradientsActions.open, Needs.DISTRIBUTION | Needs.ENGINE, recorded=lambda own: own.answers.any, looks=True,
            synonyms="integrated gradients, gradient x input, input attribution, which word matters, derivative, "
            "sensitivity, completeness, baseline", view="gradients"),
    ),
    owners=(GRADIENTS_SCREEN,),
    exports=("inspector.tools.gradients.evidence:GRADIENTS_PART",),
)  # fmt: skip
