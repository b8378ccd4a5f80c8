"""Many draws as a tool: the key that opens their screen."""

from __future__ import annotations

from inspector.main.tool import Tool
from inspector.tools.draws.control import DRAWS_SCREEN, DrawsActions
from inspector.widgets.actions import Action, Needs


def _open(own: DrawsActions) -> None:
    from inspector.tools.draws.screen import DrawsScreen

    own.open_screen(DrawsScreen(own.host, own))


DRAWS = Tool(
    "draws",
    "Draws",
    DrawsActions,
    actions=(
        Action("draws", "What are the odds",
            "Draw many times after the selected token: how often each token came, beside the sampler's probability.",
            _open, Needs.DISTRIBUTION | Needs.ENGINE, recorded=lambda own: own.batches.drawn is not None, looks=True,
            synonyms="odds, sample many times, frequencies, sampling statistics, monte carlo, is the sampler fair",
            view="odds"),
    ),
    owners=(DRAWS_SCREEN,),
    exports=("inspector.tools.draws.evidence:ODDS_PART",),
)  # fmt: skip
