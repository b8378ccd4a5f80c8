"""Comparing as a tool: the key that sets the current path against another branch."""

from __future__ import annotations

from engine.protocol import MoveTo
from inspector.main.tool import Tool, ToolActions, replayed
from inspector.tools.compare import COMPARE_SCREEN, ComparedPlace
from inspector.tools.compare.comparison import nearest
from inspector.widgets.actions import Action, Needs

ALONE = "Only one branch. Highlight a candidate and press ⏎ to make a second branch"


class CompareActions(ToolActions):
    """Compares branches."""

    def open(self) -> None:
        """Compare the current path with the branch that parts from it nearest."""
        from inspector.tools.compare.screen import CompareScreen

        other = nearest(self.timeline)
        if other is None:
            self.host.answer(ALONE)
        else:
            self.host.answer()
            self.host.open(CompareScreen(self.host, other), self._left)

    def _left(self, place: ComparedPlace | None) -> None:
        """Look at the token that was chosen, on its branch."""
        if place is None:
            return
        tip, slot = place
        if tip is None:
            self.timeline.select(slot)
        else:
            self.timeline.expect(slot)
            self.controller.client.do(MoveTo(tip))
        self.host.answer()


COMPARE = Tool(
    "compare",
    "Compare branches",
    CompareActions,
    actions=(
        Action("compare", "Compare",
            "Compare the current path with another branch, token by token: where they part, where they meet again, "
            "and the logprob of each.", CompareActions.open, Needs.DISTRIBUTION, hint=replayed("compare"),
            worth=4, place=130,
            synonyms="diff, compare branches, difference of two branches, side by side", view="compare"),
    ),
    owners=(COMPARE_SCREEN,),
)  # fmt: skip
