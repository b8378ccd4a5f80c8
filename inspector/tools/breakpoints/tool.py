"""Breakpoints as a tool: the keys that set them, skip over sure tokens, and go from landmark to landmark."""

from __future__ import annotations

from engine.breakpoints import Breakpoints
from engine.errors import EngineError
from inspector.config.preferences import SavedBreakpoints
from inspector.display import visible
from inspector.keys import KEYS, key_for
from inspector.main.tool import LOOK, STEP, Host, Key, Needs, Tool, ToolActions
from inspector.state.breakpoints import conditions


class BreakpointActions(ToolActions):
    """Sets where runs stop, and goes to where the model was unsure."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        host.controller.runs.keep = _kept

    def open(self) -> None:
        """Ask for breakpoints."""
        from inspector.tools.breakpoints.dialog import BreakpointsDialog

        points, problems = self.controller.runs.breakpoints.points, SavedBreakpoints().read().problems
        self.host.open(BreakpointsDialog(points, problems), self._left)

    def _left(self, points: Breakpoints | None) -> None:
        if points is not None:
            self.host.answer(f"{_told(points)}{self.controller.runs.break_at(points)}")

    def skip(self) -> None:
        """Run over sure tokens, or pause."""
        self.host.answer(self.controller.transport.run(over_sure=True))

    def surprise(self, by: int) -> None:
        """Look at the surprise before or after."""
        from inspector.tools.breakpoints.landmarks import SURPRISE, go

        self.host.answer(go(self.timeline, SURPRISE, by))

    def fork(self, by: int) -> None:
        """Look at the fork point before or after."""
        from inspector.tools.breakpoints.landmarks import FORK, go

        self.host.answer(go(self.timeline, FORK, by))


def _told(points: Breakpoints) -> str:
    if not points.active:
        return "No breakpoints are set"
    return f"Runs stop at {conditions(points)}. Press {key_for('run')} to run"


def _kept(points: Breakpoints) -> str:
    """Keep the breakpoints for the next start; returns what went wrong, or became of a damaged file."""
    try:
        return visible(SavedBreakpoints().save(points))
    except EngineError as error:
        return f". Not remembered: {visible(str(error))}"


BREAKPOINTS = Tool(
    "breakpoints",
    "Breakpoints",
    BreakpointActions,
    keys=(
        Key("skip", *KEYS["skip"], "Skip sure tokens", STEP,
            "Run over the tokens that the model is sure of, to where the one to come has less than 50 %: less than all "
            "others together. Breakpoints and stops hold too; again to pause.",
            BreakpointActions.skip, Needs.DISTRIBUTION | Needs.ENGINE),
        Key("breakpoints", *KEYS["breakpoints"], "Breakpoints", STEP,
            "Set where runs stop: at a wide choice, an improbable token, a fork point, a text and more.",
            BreakpointActions.open, Needs.ENGINE),
        Key("previous_surprise", *KEYS["previous_surprise"], "Surprise before", LOOK,
            "Look at the surprise before: a token of 4 bits of surprisal or more, a probability of 6.25 % or less.",
            lambda own: own.surprise(-1), Needs.DISTRIBUTION),
        Key("next_surprise", *KEYS["next_surprise"], "Next surprise", LOOK,
            "Look at the next surprise.", lambda own: own.surprise(1), Needs.DISTRIBUTION),
        Key("previous_fork", *KEYS["previous_fork"], "Fork point before", LOOK,
            "Look at the fork point before: less than 10 % between the first two candidates, or branches.",
            lambda own: own.fork(-1), Needs.DISTRIBUTION),
        Key("next_fork", *KEYS["next_fork"], "Next fork point", LOOK,
            "Look at the next fork point.", lambda own: own.fork(1), Needs.DISTRIBUTION),
    ),
)  # fmt: skip
