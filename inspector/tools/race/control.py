"""The state of the race, the commands to the engine, and the keys."""

from __future__ import annotations

from engine.protocol import Measuring, Race, RaceStep, Record
from inspector.main.tool import Host, ToolActions
from inspector.session.requests import Job
from inspector.state.measured import Measured, RaceSoFar
from inspector.widgets.actions import Action, Needs, back, both, screen_table

LENGTHS = (32, 64, 128, 256, 512, 1024, 2048, 4096)
"""Tokens that a race can go to; those beyond the context window are left out."""
FIRST = 16
"""Tokens before the first step."""


# ---- what keys do -------------------------------------------------------------------------------


class RaceActions(ToolActions):
    """Starts races, pauses and continues them; the timeline has the results of the last one."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._asked = 128
        self.job = Job(self.controller.client, Race)
        self._stepping = False

    @property
    def race(self) -> RaceSoFar | None:
        """The last race, live or recorded up to the place where the replay stands."""
        return self.timeline.of(Measured).race

    @property
    def steps(self) -> list[RaceStep]:
        """Its steps so far."""
        return self.race.steps if self.race else []

    @property
    def last(self) -> int:
        """Tokens to go to; in a replay those that were gone to."""
        recorded = self.controller.transport.recorded
        return self.race.opened.last if recorded and self.race else self._asked

    @property
    def first(self) -> int:
        """Tokens before the first step."""
        return self.race.opened.first if self.race else FIRST

    @property
    def tokens(self) -> int:
        """Tokens of the sequence so far."""
        return self.steps[-1].tokens if self.steps else FIRST

    @property
    def over(self) -> bool:
        """True if it reached its length."""
        return bool(self.steps) and self.tokens >= self.last

    @property
    def lengths(self) -> list[int]:
        """The lengths that this model can go to."""
        facts = self.timeline.facts
        window = facts.context_window if facts else None
        return [each for each in LENGTHS if window is None or each <= window] or [window or LENGTHS[0]]

    def enter(self) -> None:
        """Forget a race over another text; keep the length within the window."""
        if self.controller.transport.recorded:
            return
        if self.race is not None and self.race.opened.node != self.timeline.tip:
            self.forget()
        if self._asked not in self.lengths:
            self._asked = max((each for each in self.lengths if each <= self._asked), default=self.lengths[0])

    def forget(self) -> None:
        """Begin again from the first step."""
        self.job.stop()
        self.timeline.of(Measured).race = None
        self.job.failures.clear()

    def lengthen(self, by: int) -> None:
        """Go to another length, but not while it runs, nor to one that was passed already."""
        if self.job.running:
            return
        allowed = [each for each in self.lengths if each >= self.tokens] or [self._asked]
        place = allowed.index(self._asked) if self._asked in allowed else 0
        self._asked = allowed[max(0, min(len(allowed) - 1, place + by))]

    def toggle(self) -> None:
        """Start, pause or continue; a race that is over starts again."""
        if self.job.stop():
            return
        if self.over:
            self.forget()
        self._stepping = False
        self.job.start(Race(self.tokens, self._asked), each=self._raced)

    def _raced(self, record: Record) -> None:
        self._stepping = isinstance(record, RaceStep)

    @property
    def progress(self) -> Measuring | None:
        """The progress of the work before the first step."""
        return None if self._stepping else self.job.progress


# ---- keys ---------------------------------------------------------------------------------------

RACE_SCREEN = screen_table(
    "In a race",
    Action("race.go", "Start", "Start, pause or continue.", lambda own: own.control.toggle(), Needs.ENGINE,
           hint=lambda own: own.doing, worth=9),
    *both(("race.shorter", "race.longer"), ("Shorter", "Longer"), "Race to fewer tokens, or to more.",
          lambda own, by: own.control.lengthen(by), needs=Needs.ENGINE, worth=6,
          hint=lambda own: "" if own.control.job.running else "length"),
    Action("race.again", "Again", "Start the race again.", lambda own: own.control.forget(), Needs.ENGINE, worth=4,
           hint=lambda own: "anew" if own.control.steps and not own.control.job.running else ""),
    back("race.leave", "Go back; a race under way pauses."),
)  # fmt: skip
