"""The commands of many draws to the engine, and the keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.protocol import DrawMany
from inspector.main.tool import ToolActions
from inspector.session.requests import Job
from inspector.state.batch import Batches
from inspector.widgets.actions import Action, Needs, back, both, screen_table

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen

# ---- what the engine is asked -------------------------------------------------------------------

COUNTS = (10, 40, 200, 1000, 2000, 10_000)
LENGTHS = (1, 2, 4, 8, 16, 32)


class DrawsActions(ToolActions):
    """Starts draws and stops them."""

    def __init__(self, host: MainScreen) -> None:
        super().__init__(host)
        self.draws, self.tokens = 200, 1
        self.job = Job(self.controller.client, DrawMany)

    @property
    def batches(self) -> Batches:
        """The last count and the continuations of its draws, live or recorded up to the place of the replay."""
        return self.timeline.of(Batches)

    def toggle(self) -> None:
        """Draw after the token that is looked at, or stop."""
        if not self.job.stop():
            node = self.timeline.tip if self.timeline.following else self.timeline.before
            self.job.start(DrawMany(self.draws, node, self.tokens))

    def count(self, by: int) -> None:
        """Draw more, or fewer."""
        self.draws = _next(COUNTS, self.draws, by)

    def lengthen(self, by: int) -> None:
        """Draw longer continuations, or shorter ones."""
        self.tokens = _next(LENGTHS, self.tokens, by)


def _next(values: tuple[int, ...], value: int, by: int) -> int:
    return values[max(0, min(len(values) - 1, values.index(value) + by))]


# ---- keys ---------------------------------------------------------------------------------------

DRAWS_SCREEN = screen_table(
    "In many draws",
    Action("draws.go", "Draw", "Draw; again to stop.", lambda own: own.control.toggle(), Needs.ENGINE,
           hint=lambda own: "stop" if own.control.job.running else "draw", worth=9),
    *both(("draws.fewer", "draws.more"), ("Fewer", "More"), "Fewer draws, or more.",
          lambda own, by: own.control.count(by), needs=Needs.ENGINE, hint="number", worth=6),
    *both(("draws.longer", "draws.shorter"), ("Longer", "Shorter"),
          "Longer continuations, or shorter ones; from two tokens on they are shown as a tree.",
          lambda own, by: own.control.lengthen(by), by=(1, -1), needs=Needs.ENGINE, hint="length", worth=6),
    Action("draws.turn", "Next panel", "Where there is room for one panel, show the other.", lambda own: own.turn(),
           hint=lambda own: "panel" if own.turns else "", worth=3),
    back("draws.leave", "Go back."),
    text="`stated` is the sampler's probability, `came` the share of the draws, and `95 %` Wilson's interval of that "
        "share; `!` marks a stated probability outside of it (one in twenty is, by chance). Chi-square tests "
    "all of them at once.",
)  # fmt: skip
