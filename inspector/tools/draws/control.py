"""Asks the engine for many draws."""

from __future__ import annotations

from engine.protocol import DrawMany, DrawsCounted
from inspector.session.controller import Controller
from inspector.session.requests import Job
from inspector.state.batch import Batches, BatchSoFar

COUNTS = (10, 40, 200, 1000, 2000, 10_000)
LENGTHS = (1, 2, 4, 8, 16, 32)


class DrawControl:
    """Starts draws and stops them.

    Args:
        controller: Sends the commands.
    """

    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self.draws, self.tokens = 200, 1
        self.job = Job(controller.client, DrawMany)

    @property
    def drawn(self) -> DrawsCounted | None:
        """What came last, live or recorded up to the place where the replay is."""
        return self.controller.timeline.of(Batches).drawn

    @property
    def continued(self) -> BatchSoFar | None:
        """The continuations of those draws; None where they have only a first token."""
        return self.controller.timeline.of(Batches).continued

    def toggle(self) -> None:
        """Draw after the token that is looked at, or stop."""
        if not self.job.stop():
            timeline = self.controller.timeline
            node = timeline.tip if timeline.following else timeline.before
            self.job.start(DrawMany(self.draws, node, self.tokens))

    def count(self, by: int) -> None:
        """Draw more, or fewer."""
        self.draws = _next(COUNTS, self.draws, by)

    def lengthen(self, by: int) -> None:
        """Draw longer continuations, or shorter ones."""
        self.tokens = _next(LENGTHS, self.tokens, by)


def _next(values: tuple[int, ...], value: int, by: int) -> int:
    return values[max(0, min(len(values) - 1, values.index(value) + by))]
