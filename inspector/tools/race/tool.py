"""The race as a tool: the key that opens it."""

from __future__ import annotations

from inspector.main.tool import LOOK, Host, Tool, ToolActions
from inspector.tools.race.control import RaceControl
from inspector.widgets.actions import Action, Needs, back, both, screen_table


class RaceActions(ToolActions):
    """Measures in a screen of its own."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.control = RaceControl(host.controller)

    def open(self) -> None:
        """Open the race; one that was paused goes on there."""
        from inspector.tools.race.screen import RaceScreen

        self.open_screen(RaceScreen(self.host, self.control))


RACE_SCREEN = screen_table(
    "In a race",
    Action("race.go", "Start", "Start, pause, or go on.", lambda own: own.control.toggle(), Needs.ENGINE,
           hint=lambda own: own.doing, worth=9),
    *both(("race.shorter", "race.longer"), ("Shorter", "Longer"), "Race to fewer tokens, or to more.",
          lambda own, by: own.lengthen(by), needs=Needs.ENGINE, worth=6,
          hint=lambda own: "" if own.control.job.running else "length"),
    Action("race.again", "Again", "Begin anew.", lambda own: own.control.forget(), Needs.ENGINE, worth=4,
           hint=lambda own: "anew" if own.control.steps and not own.control.job.running else ""),
    back("race.leave", "Go back; a race under way pauses."),
)  # fmt: skip
RACE = Tool(
    "race",
    "Race",
    RaceActions,
    screen=True,
    actions=(
        Action("race", "Race", "Race with the KV cache against without: the same tokens side by side, both measured.",
            RaceActions.open, Needs.DISTRIBUTION | Needs.ENGINE, recorded=lambda own: bool(own.control.steps),
            group=LOOK, synonyms="speed benchmark with without kv cache latency"),
    ),
    owners=(RACE_SCREEN,),
)  # fmt: skip
