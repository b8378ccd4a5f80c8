"""The race as a tool: the key that opens its screen."""

from __future__ import annotations

from inspector.main.evidence import ExportPart
from inspector.main.tool import Tool
from inspector.tools.race.control import RACE_SCREEN, RaceActions
from inspector.widgets.actions import Action, Needs


def _open(own: RaceActions) -> None:
    from inspector.tools.race.screen import RaceScreen

    own.open_screen(RaceScreen(own.host, own))


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
            _open, Needs.DISTRIBUTION | Needs.ENGINE, recorded=lambda own: bool(own.steps),
            looks=True, synonyms="with and without kv cache, no kv cache, speed of the kv cache, why a cache",
            view="race"),
    ),
    owners=(RACE_SCREEN,),
    exports=_exports,
)  # fmt: skip
