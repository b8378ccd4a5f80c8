"""Comparing as a tool: the key that sets the current path against another branch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.protocol import MoveTo
from inspector.keys import KEYS
from inspector.main.tool import BRANCH, HelpSection, Hint, Key, Needs, Tool, ToolActions, When

if TYPE_CHECKING:
    from inspector.tools.compare.screen import ComparedPlace


class CompareActions(ToolActions):
    """Compares branches."""

    def open(self) -> None:
        """Compare the current path with the branch that parts from it nearest."""
        from inspector.tools.compare.comparison import nearest
        from inspector.tools.compare.screen import ALONE, CompareScreen

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
        if place.tip is None:
            self.timeline.select(place.slot)
        else:
            self.timeline.expect(place.slot)
            self.controller.client.do(MoveTo(place.tip))
        self.host.answer()


COMPARE = Tool(
    "compare",
    "Compare branches",
    CompareActions,
    keys=(
        Key("compare", *KEYS["compare"], "Compare", BRANCH,
            "Set the current path against another branch, token for token: where they part, where they meet "
            "again, and what each is worth.", CompareActions.open, Needs.DISTRIBUTION),
    ),
    hints=(Hint(13, ("compare",), "compare", 4, When.REPLAY),),
    help=(
        HelpSection(
            "While branches are compared",
            (
                ("`↑` `↓` `pgup` `pgdn`", "Walk through the tokens."),
                ("`home` `end`", "Go to where they part, then to the first token; to the last one."),
                ("`n` `N`", "Go to where they meet or part next, or did before."),
                ("`tab` `←` `→`", "Go to the other side."),
                ("`[` `]`", "Compare with the branch before or the next one."),
                ("`⏎`", "Go to the token under the cursor, on its branch."),
                ("`T`", "Switch between the dark and the light theme."),
                ("`esc` `c` `q`", "Go back."),
            ),
        ),
    ),
)  # fmt: skip
