"""Why a head looks there, as a tool: the key that opens its screen, and the text's colours."""

from __future__ import annotations

from engine.protocol import ScoreRead
from inspector.display import quoted, token_label
from inspector.main.evidence import ExportPart
from inspector.main.inside.keys import NO_ATTENTION
from inspector.main.tool import Host, OfferedHeat, Tool, ToolActions
from inspector.session.requests import Replies
from inspector.state.attribution import head_name, over_path
from inspector.tools.scores.control import SCORES_SCREEN, ScoreChoices
from inspector.widgets.actions import Action, Needs


class ScoresActions(ToolActions):
    """Opens the view, and keeps what was chosen in it and the answers of the engine."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.answers = Replies(host.controller.client, ScoreRead)
        self.choices = ScoreChoices()
        self._heat: tuple[ScoreRead, OfferedHeat] | None = None
        """What was offered last, and what it was made of."""

    def heat(self) -> OfferedHeat | None:
        """The weights of the head that was looked at last."""
        read = self.answers.newest()
        if read is None or read.node not in self.timeline.tree.nodes:
            return None
        if self._heat is None or self._heat[0] is not read:
            path = self.timeline.tree.path(read.node)
            shares = {item.node: share for item, share in zip(path, over_path(read, len(path)), strict=True)}
            token = quoted(token_label(path[-1].text, path[-1].raw))
            self._heat = read, OfferedHeat(f"{head_name(read)} from {token}", shares)
        return self._heat[1]

    def open(self) -> None:
        """Look at why a head looks where it does, from the selected token."""
        from inspector.tools.scores.screen import ScoresScreen

        self.open_screen(ScoresScreen(self.host, self.answers, self.choices))

    def point(self, *place: int) -> None:
        """Choose a head of a layer; of a layer alone the head that looks most at one token."""
        layer, *head = place
        self.choices.layer, self.choices.head = layer - 1, head[0] - 1 if head else None


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
            ScoresActions.open, Needs.DISTRIBUTION | Needs.ENGINE, recorded=lambda own: own.answers.any, looks=True,
            lacks=NO_ATTENTION,
            synonyms="attention score, query, key, qk circuit, composition, why a head looks there, "
            "score attribution", view="why"),
    ),
    owners=(SCORES_SCREEN,),
    exports=_exports,
)  # fmt: skip
