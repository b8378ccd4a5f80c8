"""What the keys of the race mean to the engine, and the race as it stands."""

from __future__ import annotations

from dataclasses import replace

from engine.commands import Race
from engine.records import RaceOpened, RaceStep, Record
from inspector.session.controller import Controller
from inspector.session.job import Job

LENGTHS = (32, 64, 128, 256, 512, 1024, 2048, 4096)
"""Tokens that a race can go to; those beyond the context window are left out."""
FIRST = 16
"""Tokens before the first step."""


class RaceControl:
    """Starts races, pauses them and takes them up again, and keeps the steps of the last one.

    Args:
        controller: Sends the commands.
    """

    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self.last = 128
        """Tokens to go to."""
        self.opened: RaceOpened | None = None
        self.steps: list[RaceStep] = []
        """Their sums go on over pauses."""
        self.job = Job(controller.client, Race)
        self.largest = 0.0
        """Difference of the logits so far."""
        self._before = 0.0, 0.0

    @property
    def tokens(self) -> int:
        """Of the sequence so far."""
        return self.steps[-1].tokens if self.steps else FIRST

    @property
    def over(self) -> bool:
        """Whether it reached its length."""
        return bool(self.steps) and self.tokens >= self.last

    @property
    def lengths(self) -> list[int]:
        """Those that this model can go to."""
        facts = self.controller.timeline.facts
        window = facts.context_window if facts else None
        return [each for each in LENGTHS if window is None or each <= window] or [window or LENGTHS[0]]

    def enter(self) -> None:
        """Forget a race over another text; keep the length within the window."""
        if self.opened is not None and self.opened.node != self.controller.timeline.tip:
            self.forget()
        if self.last not in self.lengths:
            self.last = max((each for each in self.lengths if each <= self.last), default=self.lengths[0])

    def forget(self) -> None:
        """Begin again from the first step."""
        self.job.stop()
        self.opened, self.steps = None, []
        self.job.failures.clear()
        self.largest, self._before = 0.0, (0.0, 0.0)

    def lengthen(self, by: int) -> None:
        """Go to another length; one that was passed already is not among them."""
        allowed = [each for each in self.lengths if each >= self.tokens] or [self.last]
        place = allowed.index(self.last) if self.last in allowed else 0
        self.last = allowed[max(0, min(len(allowed) - 1, place + by))]

    def toggle(self) -> None:
        """Start, pause, or go on; one that is over starts again."""
        if self.job.stop():
            return
        if self.over:
            self.forget()
        if self.steps:
            self._before = self.steps[-1].cached_total_ms, self.steps[-1].uncached_total_ms
        self.job.start(Race(self.tokens, self.last))

    def receive(self, record: Record) -> None:
        """Take in one record."""
        self.job.receive(record)
        match record:
            case RaceOpened():
                if record.first != self.tokens:  # whoever began it
                    self.steps, self._before = [], (0.0, 0.0)
                self.last = record.last
                first = self.opened.first if self.opened and self.steps else record.first
                self.opened = replace(record, first=first)
            case RaceStep():
                self._step(record)
            case _:
                pass

    def _step(self, step: RaceStep) -> None:
        if step.tokens != self.tokens + 1:
            return  # of a race that was forgotten
        self.job.progress = None  # what is done before the first step is done
        self.largest = max(self.largest, step.largest_difference)
        cached, uncached = self._before
        whole = replace(
            step,
            cached_total_ms=step.cached_total_ms + cached,
            uncached_total_ms=step.uncached_total_ms + uncached,
        )
        self.steps.append(whole)
