"""The logit lens as a tool: the key that opens its screen."""

from __future__ import annotations

from inspector.main.evidence import ExportPart
from inspector.main.tool import Tool
from inspector.tools.lens.control import LENS_SCREEN, LensActions
from inspector.widgets.actions import Action, Needs


def _open(own: LensActions) -> None:
    from inspector.tools.lens.screen import LensScreen

    own.open_screen(LensScreen(own))


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
            _open, Needs.DISTRIBUTION | Needs.ENGINE, recorded=lambda own: own.answers.any, looks=True,
            synonyms="logit lens, early exit, intermediate layers, layer predictions, unembed", view="lens"),
    ),
    owners=(LENS_SCREEN,),
    exports=_exports,
)  # fmt: skip
