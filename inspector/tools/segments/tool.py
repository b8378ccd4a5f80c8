"""Segments as a tool: its keys, and the check of each tool call of the path once it has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.protocol import CheckToolCall, Finished, Record, Step
from inspector.main.tool import Tool, ToolActions
from inspector.session.client import Request
from inspector.state.segments import Segments
from inspector.tools.segments.control import SEGMENTS_SCREEN
from inspector.widgets.actions import Action, Needs

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen


class SegmentActions(ToolActions):
    """Has tool calls checked, and opens the list of segments."""

    def __init__(self, host: MainScreen) -> None:
        super().__init__(host)
        self._asked: set[tuple[int, int]] = set()
        """Tree and node of each call that was asked about: one that the engine refuses is not asked about again."""
        self.controller.client.listen(self._check_next, Step, Finished)  # a call may end with any token

    def open(self) -> None:
        """Show the segments of the path."""
        from inspector.tools.segments.screen import SegmentsScreen

        self.open_screen(SegmentsScreen(self.host))

    def shown(self) -> None:
        """Another path, or another model: have its calls checked."""
        self._check_next()

    def _check_next(self, record: Record | None = None) -> None:
        """Have the next tool call checked that has ended.

        Args:
            record: That may have ended one.
        """
        client = self.controller.client
        timeline = client.timeline
        path = timeline.segments
        if not path.calling or timeline.recorded or client.of(CheckToolCall):
            return
        segments = timeline.of(Segments)
        for _, node in segments.calls(path):
            asked = id(timeline.tree), node
            if node not in segments.checked and asked not in self._asked:
                self._asked.add(asked)
                client.do(CheckToolCall(node), self._checked)
                return

    def _checked(self, request: Request[CheckToolCall]) -> None:
        self._check_next()
        self.host.changed()


SEGMENTS = Tool(
    "segments",
    "Segments",
    SegmentActions,
    actions=(
        Action("segments", "Segments",
            "Show the segments: system, user, thinking, answer, tool calls and results, with the tokens, time and "
            "surprisal of each; go from one to the next, or fold one in the text.",
            SegmentActions.open, Needs.DISTRIBUTION, looks=True,
            synonyms="reasoning, thinking, thoughts, tool calls, function calls, roles, chat template, fold, "
            "cost of thinking, tokens by role, harmony, channels", view="segments"),
    ),
    owners=(SEGMENTS_SCREEN,),
    exports=("inspector.tools.segments.evidence:SEGMENTS_PART",),
)  # fmt: skip
