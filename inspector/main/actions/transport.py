"""Stepping and running: what moves on, the same for a live engine and for a recording."""

from __future__ import annotations

from engine.protocol import TakeStep
from inspector.main.tool import BRANCH, STEP, Tool, ToolActions
from inspector.state.timeline import Phase
from inspector.widgets.actions import Action, ActionTable, Needs


class TransportActions(ToolActions):
    """Moves on and back."""

    def step(self) -> None:
        """Step, walk forward or pause."""
        answer = self.controller.transport.step()
        if answer or not self.controller.client.of(TakeStep):
            self.host.answer(answer)
        else:
            self.host.expect()


TRANSPORT = Tool(
    "transport",
    "Step and run",
    TransportActions,
    actions=(
        Action("step", "Step",
            "Take the token that the sampler picked; at an older token walk one forward; while running, "
            "pause.", TransportActions.step, Needs.DISTRIBUTION, moves="on", group=STEP,
            synonyms="next token generate one forward", hint="step", worth=12, place=10),
        Action("run", "Run", "Step on until a stop is reached; again to pause.",
            lambda own: own.host.answer(own.controller.transport.run()), Needs.DISTRIBUTION, moves="on", group=STEP,
            synonyms="play continue generate go start pause", hint="run", worth=11, place=20),
        Action("faster", "Faster",
            "Run at a faster pace: 1, 2, 5, 10, 20 steps a second or as fast as it goes; in a prefill, take larger "
            "chunks.", lambda own: own.host.answer(own.controller.transport.change_pace(1)), Needs.SESSION, group=STEP,
            synonyms="speed pace quick"),
        Action("slower", "Slower", "Run at a slower pace; in a prefill, take smaller chunks.",
            lambda own: own.host.answer(own.controller.transport.change_pace(-1)), Needs.SESSION, group=STEP,
            synonyms="speed pace slow"),
        Action("take_back", "Take back", "Take back the last token of the completion; its branch is kept.",
            lambda own: own.host.answer(own.controller.transport.back()), Needs.DISTRIBUTION, moves="back",
            group=BRANCH, synonyms="delete remove last token backspace", hint="take back", worth=2, place=80),
    ),
    contexts=(
        ActionTable("While it runs", (
            Action("step", hint="pause", worth=12, place=10),
            Action("slower", hint="pace", worth=11, place=20), Action("faster", hint="pace", worth=11, place=20),
        ), when=lambda own: own.timeline.phase is Phase.RUNNING, told=False),
        ActionTable("While a recording is shown", (
            Action("step", hint="next", worth=12, place=10), Action("run", hint="play", worth=11, place=20),
            Action("take_back", hint="back", worth=9, place=80),
        ), when=lambda own: own.timeline.recorded, told=False),
    ),
)  # fmt: skip
