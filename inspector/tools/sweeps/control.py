"""Which sweeps are asked for, and the keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from engine.protocol import Sweep, Swept
from engine.sweep_settings import SWEEPS, SweepName, SweepSettings
from inspector.session.controller import Controller
from inspector.session.requests import Job
from inspector.state.measured import Measured
from inspector.widgets.actions import Action, Needs, back, both, note, screen_table

LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
"""Tokens that the longest prompt or context can have; the engine stays within the context window."""
NAMES = {
    "ttft": "first token over prompt",
    "tpot": "each token over context",
    "batch": "throughput over batch",
    "inspection": "cost of inspection",
    "blas": "BLAS and dtype",
}
SHORT = {"ttft": "TTFT", "tpot": "TPOT", "batch": "batch", "inspection": "inspection", "blas": "BLAS"}
"""For a line with little room."""


# ---- what keys do -------------------------------------------------------------------------------


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
        """The figures of the last ones, live or recorded up to the place where the replay stands."""
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


# ---- keys ---------------------------------------------------------------------------------------


def _idle(word: str) -> Callable[[Any], str]:
    """A word for the line of keys, but while something is measured."""
    return lambda own: "" if own.control.job.running else word


def _sweep(place: int) -> Action:
    """The action that asks for a sweep, or leaves it out."""
    return Action(f"sweeps.{SWEEPS[place]}", NAMES[SWEEPS[place]], "Include this sweep, or leave it out.",
                  lambda own: own.turn(place), Needs.ENGINE, hint=_idle("choose"), worth=5)  # fmt: skip


SWEEP_SCREEN = screen_table(
    "While sweeps are measured",
    Action("sweeps.go", "Start", "Start, or stop.", lambda own: own.control.toggle(), Needs.ENGINE,
           hint=lambda own: "stop" if own.control.job.running else "start", worth=9),
    *map(_sweep, range(len(SWEEPS))),
    *both(("sweeps.shorter", "sweeps.longer"), ("Shorter", "Longer"),
          "Measure up to shorter prompts and contexts, or longer ones.", lambda own, by: own.lengthen(by),
          needs=Needs.ENGINE, hint=_idle("length"), worth=6),
    note("up down", "Scroll the tables.", "scroll", 4),
    note("pageup pagedown", "Scroll the tables."),
    back("sweeps.leave", "Go back; a measurement stops."),
)  # fmt: skip
