"""The check of each tool call of the path once it has ended."""

from __future__ import annotations

from engine.protocol import CheckToolCall, Finished, Record, Step
from inspector.main.tool import Host, ToolActions
from inspector.session.client import Request
from inspector.state.segments import Segments


class ToolCallChecks(ToolActions):
    """Checks each tool call of the path once it has ended, whether or not the view is open."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._asked: set[tuple[int, int]] = set()
        """Tree and node of each call that was asked about, so that one that the engine refused is not asked again."""
        self.controller.client.listen(self._check_next, Step, Finished)  # a call may end with any token

    def shown(self) -> None:
        """Check the calls of another path, or for another model."""
        self._check_next()

    def _check_next(self, record: Record | None = None) -> None:
        """Check the next tool call that has ended."""
        client, timeline = self.controller.client, self.timeline
        path, segments = timeline.segments, timeline.of(Segments)
        if not path.calling or timeline.recorded or client.of(CheckToolCall):
            return
        for _, node in segments.calls(path):
            asked = id(timeline.tree), node
            if node not in segments.checked and asked not in self._asked:
                self._asked.add(asked)
                client.do(CheckToolCall(node), self._checked)
                return

    def _checked(self, request: Request[CheckToolCall]) -> None:
        self._check_next()
        self.host.changed()
