"""Breakpoints as a tool: the keys that set them, skip over sure tokens, and go from landmark to landmark."""

from __future__ import annotations

from engine.breakpoints import Breakpoints
from engine.errors import EngineError
from inspector.config.preferences import SavedBreakpoints
from inspector.display import visible
from inspector.keys import key_for
from inspector.main.tool import LOOK, STEP, Host, Tool, ToolActions
from inspector.state.breakpoints import conditions
from inspector.widgets.actions import Action, Needs, dialog_table, fields, taking


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


BREAKPOINT_KEYS = dialog_table(
    "Among the breakpoints",
    *fields(),
    taking(),
    Action("breakpoints.clear", "Clear all", "Turn every breakpoint off.", lambda own: own.clear_all(),
           hint="clear all", worth=4, priority=True),
    told=False,
)  # fmt: skip
BREAKPOINTS = Tool(
    "breakpoints",
    "Breakpoints",
    BreakpointActions,
    actions=(
        Action("skip", "Skip sure tokens",
            "Run over the tokens that the model is sure of, to where the one to come has less than 50 %: less than all "
            "others together. Breakpoints and stops hold too; again to pause.",
            lambda own: own.host.answer(own.controller.transport.run(over_sure=True)),
            Needs.DISTRIBUTION | Needs.ENGINE, group=STEP, synonyms="next uncertain interesting"),
        Action("breakpoints", "Breakpoints",
            "Set where runs stop: at a wide choice, an improbable token, a fork point, a text and more.",
            BreakpointActions.open, Needs.ENGINE, group=STEP, synonyms="stop debug condition pause until"),
        Action("previous_surprise", "Surprise before",
            "Look at the surprise before: a token of 4 bits of surprisal or more, a probability of 6.25 % or less.",
            lambda own: own.surprise(-1), Needs.DISTRIBUTION, group=LOOK),
        Action("next_surprise", "Next surprise", "Look at the next surprise.", lambda own: own.surprise(1),
            Needs.DISTRIBUTION, group=LOOK),
        Action("previous_fork", "Fork point before",
            "Look at the fork point before: less than 10 % between the first two candidates, or branches.",
            lambda own: own.fork(-1), Needs.DISTRIBUTION, group=LOOK),
        Action("next_fork", "Next fork point", "Look at the next fork point.", lambda own: own.fork(1),
            Needs.DISTRIBUTION, group=LOOK),
    ),
    owners=(BREAKPOINT_KEYS,),
)  # fmt: skip
