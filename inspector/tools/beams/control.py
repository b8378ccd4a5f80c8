"""What the keys of the beam screen mean to the engine."""

from __future__ import annotations

from engine.beam_settings import BeamSettings
from engine.protocol import GoOnBeams, MoveTo, SearchBeams
from inspector.session.client import Request
from inspector.session.controller import Controller
from inspector.session.transport import MAX_QUEUED_STEPS
from inspector.state.beams import BeamHistory, BeamSearch


class BeamControl:
    """Begins beam searches and goes on with the one that waits.

    Args:
        controller: Sends the commands.
    """

    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self.settings = BeamSettings()
        """Those asked for last, for as long as the program runs."""

    @property
    def search(self) -> BeamSearch | None:
        """The search that was begun last."""
        return self.controller.timeline.of(BeamHistory).search

    @property
    def start(self) -> int:
        """Node after which a search would begin: beams stand in the place of the token that is looked at."""
        timeline = self.controller.timeline
        if timeline.following or not timeline.items:
            return timeline.tip
        return timeline.before or timeline.items[0].node

    @property
    def running(self) -> bool:
        """Whether a search goes on by itself."""
        return any(each.command.steps is None for each in self._out())

    @property
    def busy(self) -> bool:
        """Whether the engine has beams to see to."""
        return bool(self._out())

    def _out(self) -> list[Request[SearchBeams | GoOnBeams]]:
        """What is asked for and neither ended nor cancelled."""
        return self.controller.client.under_way(SearchBeams, GoOnBeams)

    def begin(self, settings: BeamSettings) -> None:
        """Begin a search and take its first step; the session stands afterwards where it stood."""
        self.settings = settings
        self.pause()
        start, tip = self.start, self.controller.timeline.tip
        if start == tip:
            self.controller.client.do(SearchBeams(settings, steps=1))
            return
        for command in (MoveTo(start), SearchBeams(settings, steps=1), MoveTo(tip)):
            self.controller.client.do(command)

    def step(self) -> None:
        """Take one step, or pause."""
        if self.running:
            self.pause()
        elif self._waits and len(self._out()) < MAX_QUEUED_STEPS:
            self.controller.client.do(GoOnBeams(steps=1))

    def run(self) -> None:
        """Go on to the end, or pause."""
        if self.running:
            self.pause()
        elif self._waits:
            self.controller.client.do(GoOnBeams())

    @property
    def _waits(self) -> bool:
        return self.search is not None and not self.search.over

    def pause(self) -> None:
        """Stop after the step that is under way."""
        self.controller.client.cancel(*self._out())

    def go(self, node: int) -> None:
        """Stand at the end of a beam."""
        self.pause()
        self.controller.timeline.select(None)
        self.controller.client.do(MoveTo(node))
