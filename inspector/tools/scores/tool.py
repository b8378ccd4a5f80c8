"""Why a head looks there, as a tool: the key that opens its screen."""

from __future__ import annotations

from inspector.main.tool import NO_ATTENTION, Tool
from inspector.tools.scores.control import SCORES_SCREEN, ScoresActions
from inspector.widgets.actions import Action, Needs


def _open(own: ScoresActions) -> None:
    from inspector.tools.scores.screen import ScoresScreen

    own.open_screen(ScoresScreen(own))


SCORES = Tool(
    "scores",
    "Why there",
    ScoresActions,
    actions=(
        Action("scores", "Why there", "Show why a head looks where it looks: what wrote the query and the keys.",
            _open, Needs.DISTRIBUTION | Needs.ENGINE, recorded=lambda own: own.answers.any, looks=True,
            lacks=NO_ATTENTION,
            synonyms="attention score, query, key, qk circuit, composition, why a head looks there, "
            "score attribution", view="why"),
    ),
    owners=(SCORES_SCREEN,),
    exports=("inspector.tools.scores.evidence:SCORES_PART",),
)  # fmt: skip
