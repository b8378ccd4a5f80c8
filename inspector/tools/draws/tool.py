"""Many draws as a tool: the key that opens their screen."""

from __future__ import annotations

from inspector.main.evidence import ExportPart
from inspector.main.tool import Host, Tool, ToolActions
from inspector.state.batch import Batches
from inspector.tools.draws.control import DRAWS_SCREEN, DrawControl
from inspector.widgets.actions import Action, Needs


class DrawsActions(ToolActions):
    """Counts draws in a screen of its own."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.control = DrawControl(host.controller)

    def open(self) -> None:
        """Open the draws after the token that is looked at."""
        from inspector.tools.draws.screen import DrawsScreen

        self.open_screen(DrawsScreen(self.host, self.control))


def _exports() -> tuple[ExportPart, ...]:
    from inspector.tools.draws.evidence import ODDS_PART

    return (ODDS_PART,)


DRAWS = Tool(
    "draws",
    "Draws",
    DrawsActions,
    screen=True,
    actions=(
        Action("draws", "What are the odds",
            "Draw many times after the selected token: how often each token came, beside the sampler's probability.",
            DrawsActions.open, Needs.DISTRIBUTION | Needs.ENGINE,
            recorded=lambda own: own.timeline.of(Batches).drawn is not None, looks=True,
            synonyms="odds, sample many times, frequencies, sampling statistics, monte carlo, is the sampler fair",
            view="odds"),
    ),
    owners=(DRAWS_SCREEN,),
    exports=_exports,
)  # fmt: skip
