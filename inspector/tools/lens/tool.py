"""The logit lens as a tool: the key that opens its screen."""

from __future__ import annotations

from engine.protocol import LensRead
from inspector.main.evidence import ExportPart
from inspector.main.tool import Host, OfferedHeat, Tool, ToolActions
from inspector.session.requests import Replies
from inspector.tools.lens.control import LENS_SCREEN, LensChoices
from inspector.widgets.actions import Action, Needs


class LensActions(ToolActions):
    """Opens the lens, and keeps the answers of the engine and what was chosen."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.answers = Replies(host.controller.client, LensRead)
        self.choices = LensChoices()

    def open(self) -> None:
        """Look at the selected token through the lens."""
        from inspector.tools.lens.screen import LensScreen

        self._begin()
        self.open_screen(LensScreen(self.host, self.answers, self.choices))

    def heat(self) -> OfferedHeat | None:
        """How many of the layers it takes until the final token leads, of each position of the latest table."""
        read = self.answers.newest(self.timeline.before)
        if read is None or not read.columns:
            return None
        shares = {
            column.node: min(1.0, column.leads_from / (len(column.cells) - 1))
            for column in read.columns
            if len(column.cells) > 1
        }
        return OfferedHeat("layers until the answer leads", shares)

    def point(self, *place: int) -> None:
        """Choose a layer."""
        (self.choices.layer,) = place

    def _begin(self) -> None:
        """Follow the candidate that was highlighted, where that isn't the one that stands there anyway."""
        if self.choices.opened_at != (place := (self.timeline.before, self.timeline.taken)):
            self.choices.followed, self.choices.opened_at = None, place
        highlighted, usual = self.host.candidate, self.timeline.candidates[:1]
        if highlighted is not None and highlighted.id not in (
            self.timeline.taken,
            *(one.id for one in usual),
        ):
            self.choices.followed = highlighted.id


def _exports() -> tuple[ExportPart, ...]:
    from inspector.tools.lens.evidence import LENS_PART

    return (LENS_PART,)


LENS = Tool(
    "lens",
    "Logit lens",
    LensActions,
    screen=True,
    actions=(
        Action("lens", "Lens", "Show what each layer would predict, read by the model's last norm and output matrix.",
            LensActions.open, Needs.DISTRIBUTION | Needs.ENGINE, recorded=lambda own: own.answers.any, looks=True,
            synonyms="logit lens, early exit, intermediate layers, layer predictions, unembed", view="lens"),
    ),
    owners=(LENS_SCREEN,),
    exports=_exports,
)  # fmt: skip
