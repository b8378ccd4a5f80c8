"""The ranks that compute a model together, as a tool."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.protocol import MeasureRanks
from inspector.main.tool import Tool, ToolActions
from inspector.session.requests import Job
from inspector.state.measured import Measured
from inspector.tools.ranks import RANKS_SCREEN
from inspector.widgets.actions import Action, Needs

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen


class RanksActions(ToolActions):
    """Opens the ranks."""

    def __init__(self, host: MainScreen) -> None:
        super().__init__(host)
        self.job = Job(host.controller.client, MeasureRanks)

    @property
    def measured(self) -> Measured:
        """The measurements of the session, live or recorded."""
        return self.timeline.of(Measured)

    def open(self) -> None:
        """Show what each rank holds."""
        from inspector.tools.ranks.screen import RanksScreen

        self.open_screen(RanksScreen(self.host, self.job))


RANKS = Tool(
    "ranks",
    "Ranks",
    RanksActions,
    actions=(
        Action("ranks", "Ranks",
            "Show the processes that compute the model together: layers, weights, KV and memory of each, and a step's "
            "compute and communication.", RanksActions.open, Needs.DISTRIBUTION | Needs.ENGINE,
            recorded=lambda own: (own.measured.ranks or own.measured.loaded) is not None, looks=True,
            synonyms="distributed, tensor parallel, pipeline parallel, several machines, processes, gpus",
            view="ranks"),
    ),
    owners=(RANKS_SCREEN,),
)  # fmt: skip
