"""What many draws ask of the engine, and the keys."""

from __future__ import annotations

from engine.protocol import DrawMany, DrawsCounted
from inspector.session.controller import Controller
from inspector.session.requests import Job
from inspector.state.batch import Batches, BatchSoFar
from inspector.widgets.actions import Action, Needs, back, both, screen_table

# ---- what the engine is asked -------------------------------------------------------------------

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
        """The last count, live or recorded up to the place where the replay is."""
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
