"""The race as a tool: the key that opens it."""

from __future__ import annotations

from inspector.keys import KEYS
from inspector.main.tool import LOOK, HelpSection, Host, Key, Needs, Tool, ToolActions
from inspector.tools.race.control import RaceControl


class RaceActions(ToolActions):
    """Measures in a screen of its own."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.control = RaceControl(host.controller)

    def open(self) -> None:
        """Open the race; one that was paused goes on there."""
        from inspector.tools.race.screen import RaceScreen

        self.controller.client.pause()
        self.host.answer()
        self.host.open(RaceScreen(self.host, self.control))


RACE = Tool(
    "race",
    "Race",
    RaceActions,
    screen=True,
    keys=(
        Key("race", *KEYS["race"], "Race", LOOK,
            "Race with the KV cache against without: the same tokens side by side, both measured.",
            RaceActions.open, Needs.DISTRIBUTION | Needs.ENGINE, recorded=lambda own: bool(own.control.steps)),
    ),
    help=(
        HelpSection(
            "In a race",
            (
                ("`space` `r` `⏎`", "Start, pause, or go on."),
                ("`←` `→` `-` `+`", "Race to fewer tokens, or to more."),
                ("`n`", "Begin anew."),
                ("`T`", "Switch between the dark and the light theme."),
                ("`esc` `z` `q`", "Go back; a race under way pauses."),
            ),
        ),
    ),
)  # fmt: skip
