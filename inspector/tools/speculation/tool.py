"""Speculative decoding as a tool: the key that opens its screen."""

from __future__ import annotations

from inspector.main.tool import Tool
from inspector.tools.speculation.control import SPECULATION_SCREEN, SpeculationActions
from inspector.widgets.actions import Action, Needs


def _open(own: SpeculationActions) -> None:
    from inspector.tools.speculation.screen import SpeculationScreen

    own.open_screen(SpeculationScreen(own.host, own))


SPECULATION = Tool(
    "speculation",
    "Speculation",
    SpeculationActions,
    actions=(
        Action("speculation", "Speculate",
            "Take several tokens with one forward: a draft proposes them, the model accepts or refuses each.",
            _open, Needs.DISTRIBUTION | Needs.ENGINE, recorded=lambda own: own.state.latest is not None,
            synonyms="speculative decoding, speculative sampling, draft model, assisted generation, prompt lookup",
            view="speculation"),
    ),
    owners=(SPECULATION_SCREEN,),
)  # fmt: skip
