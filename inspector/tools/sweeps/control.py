"""Which sweeps are asked for."""

from __future__ import annotations

from dataclasses import replace

from engine.protocol import Sweep, Swept
from engine.sweep_settings import SWEEPS, SweepName, SweepSettings
from inspector.session.controller import Controller
from inspector.session.requests import Job
from inspector.state.measured import Measured

LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
"""Tokens that the longest prompt or context can have; the engine stays within the context window."""


class SweepControl:
    """Starts sweeps and stops them.

    Args:
        controller: Sends the commands.
    """

    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self.settings = SweepSettings(rounds=3, longest=512)
        """Those asked for last: less than the command's own, since somebody sits before it."""
        self.job = Job(controller.client, Sweep)

    @property
    def swept(self) -> Swept | None:
        """What came of the last ones, live or recorded up to the place where the replay stands."""
        return self.controller.timeline.of(Measured).swept

    @property
    def chosen(self) -> tuple[SweepName, ...]:
        """The sweeps that are asked for, in their order."""
        return tuple(name for name in SWEEPS if name in self.settings.sweeps)

    def turn(self, place: int) -> None:
        """Ask for a sweep, or no longer; one is always asked for."""
        name = SWEEPS[place]
        kept = tuple(each for each in SWEEPS if (each in self.settings.sweeps) != (each == name))
        self.settings = replace(self.settings, sweeps=kept or (name,))

    def lengthen(self, by: int) -> None:
        """Go to longer or shorter prompts and contexts."""
        place = LENGTHS.index(self.settings.longest) + by
        self.settings = replace(self.settings, longest=LENGTHS[max(0, min(len(LENGTHS) - 1, place))])

    def toggle(self) -> None:
        """Start, or stop."""
        if not self.job.stop():
            self.job.start(Sweep(self.settings))
