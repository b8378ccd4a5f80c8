"""Why a head looks there, as a tool: the key that opens its screen."""

from __future__ import annotations

from inspector.main.evidence import ExportPart
from inspector.main.inside.keys import NO_ATTENTION
from inspector.main.tool import Tool
from inspector.tools.scores.control import SCORES_SCREEN, ScoresActions
from inspector.widgets.actions import Action, Needs


def _open(own: ScoresActions) -> None:
    from inspector.tools.scores.screen import ScoresScreen

    own.open_screen(ScoresScreen(own))


def _exports() -> tuple[ExportPart, ...]:
    from inspector.tools.scores.evidence import SCORES_PART

    return (SCORES_PART,)


SCORES = Tool(
    "scores",
    "Why there",
    ScoresActions,
    screen=True,
    actions=(
        Action("scores", "Why there", "Show why a head looks where it looks: what wrote the query and the keys.",
            _open, Needs.DISTRIBUTION | Needs.ENGINE, recorded=lambda own: own.answers.any, looks=True,
            lacks=NO_ATTENTION,
            synonyms="attention score, query, key, qk circuit, composition, why a head looks there, "
            "score attribution", view="why"),
    ),
    owners=(SCORES_SCREEN,),
    exports=_exports,
)  # fmt: skip
