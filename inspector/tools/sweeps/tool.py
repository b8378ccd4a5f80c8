"""Sweeps as a tool: the key that opens them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.sweep_settings import SWEEPS
from inspector.main.tool import LOOK, Host, Tool, ToolActions
from inspector.tools.sweeps.control import SweepControl
from inspector.widgets.actions import Action, Needs, back, both, note, screen_table


class SweepActions(ToolActions):
    """Measures in a screen of its own."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.control = SweepControl(host.controller)

    def open(self) -> None:
        """Open the sweeps."""
        from inspector.tools.sweeps.screen import SweepScreen

        self.open_screen(SweepScreen(self.host, self.control))


NAMES = {
    "ttft": "first token over prompt",
    "tpot": "each token over context",
    "batch": "throughput over batch",
    "inspection": "cost of inspection",
    "blas": "BLAS and dtype",
}


def _idle(word: str) -> Callable[[Any], str]:
    """A word for the line of keys, but while something is measured."""
    return lambda own: "" if own.control.job.running else word


def _sweep(place: int) -> Action:
    """The action that asks for a sweep, or leaves it out."""
    return Action(f"sweeps.{SWEEPS[place]}", NAMES[SWEEPS[place]], "Measure a sweep, or leave it out.",
                  lambda own: own.turn(place), Needs.ENGINE, hint=_idle("choose"), worth=5)  # fmt: skip


SWEEP_SCREEN = screen_table(
    "While sweeps are measured",
    Action("sweeps.go", "Start", "Start, or stop.", lambda own: own.control.toggle(), Needs.ENGINE,
           hint=lambda own: "stop" if own.control.job.running else "start", worth=9),
    *map(_sweep, range(len(SWEEPS))),
    *both(("sweeps.shorter", "sweeps.longer"), ("Shorter", "Longer"),
          "Go to shorter prompts and contexts, or to longer ones.", lambda own, by: own.lengthen(by),
          needs=Needs.ENGINE, hint=_idle("length"), worth=6),
    note("up down", "Scroll the tables.", "scroll", 4),
    note("pageup pagedown", "Scroll the tables."),
    back("sweeps.leave", "Go back; what is measured stops."),
)  # fmt: skip
SWEEP = Tool(
    "sweeps",
    "Sweeps",
    SweepActions,
    screen=True,
    actions=(
        Action("sweep", "Sweeps",
            "Measure time to first token over the prompt's length, time per token over the context's, throughput over "
            "the batch, and what inspection costs.", SweepActions.open, Needs.MODEL | Needs.ENGINE,
            refusal="There is no model to measure yet", recorded=lambda own: own.control.swept is not None, group=LOOK,
            synonyms="speed benchmark lengths throughput latency measure"),
    ),
    owners=(SWEEP_SCREEN,),
)  # fmt: skip
