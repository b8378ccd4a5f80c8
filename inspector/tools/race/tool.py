"""The race as a tool: the key that opens its screen."""

from __future__ import annotations

from inspector.main.evidence import ExportPart
from inspector.main.tool import Host, Tool, ToolActions
from inspector.tools.race.control import RACE_SCREEN, RaceControl
from inspector.widgets.actions import Action, Needs


class RaceActions(ToolActions):
    """Measures in a screen of its own."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.control = RaceControl(host.controller)

    def open(self) -> None:
        """Open the race; one that was paused goes on there."""
        from inspector.tools.race.screen import RaceScreen

        self.open_screen(RaceScreen(self.host, self.control))


def _exports() -> tuple[ExportPart, ...]:
    from inspector.tools.race.evidence import RACE_PART

    return (RACE_PART,)


RACE = Tool(
    "race",
    "Race",
    RaceActions,
    screen=True,
    actions=(
        Action("race", "Race", "Race with a KV cache against without: the same tokens side by side, both measured.",
            RaceActions.open, Needs.DISTRIBUTION | Needs.ENGINE, recorded=lambda own: bool(own.control.steps),
            looks=True, synonyms="with and without kv cache, no kv cache, speed of the kv cache, why a cache",
            view="race"),
    ),
    owners=(RACE_SCREEN,),
    exports=_exports,
)  # fmt: skip
