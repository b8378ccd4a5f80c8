"""Many draws as a tool: the key that opens their screen."""

from __future__ import annotations

from inspector.main.evidence import ExportPart
from inspector.main.tool import Tool
from inspector.tools.draws.control import DRAWS_SCREEN, DrawsActions
from inspector.widgets.actions import Action, Needs


def _open(own: DrawsActions) -> None:
    from inspector.tools.draws.screen import DrawsScreen

    own.open_screen(DrawsScreen(own.host, own))


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
            _open, Needs.DISTRIBUTION | Needs.ENGINE, recorded=lambda own: own.batches.drawn is not None, looks=True,
            synonyms="odds, sample many times, frequencies, sampling statistics, monte carlo, is the sampler fair",
            view="odds"),
    ),
    owners=(DRAWS_SCREEN,),
    exports=_exports,
)  # fmt: skip
