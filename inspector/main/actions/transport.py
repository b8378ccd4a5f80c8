"""Stepping and running: what moves on, the same for a live engine and for a recording."""

from __future__ import annotations

from engine.protocol import TakeStep
from inspector.keys import KEYS
from inspector.main.tool import BRANCH, STEP, Hint, Key, Needs, Tool, ToolActions, When


class TransportActions(ToolActions):
    """Moves on and back."""

    def step(self) -> None:
        """Step, walk forward or pause."""
        answer = self.controller.transport.step()
        if answer or not self.controller.client.of(TakeStep):
            self.host.answer(answer)
        else:
            self.host.expect()

    def run(self) -> None:
        """Run or pause."""
        self.host.answer(self.controller.transport.run())

    def back(self) -> None:
        """Go back before the last step."""
        self.host.answer(self.controller.transport.back())

    def pace(self, by: int) -> None:
        """Change the pace."""
        self.host.answer(self.controller.transport.change_pace(by))


TRANSPORT = Tool(
    "transport",
    "Step and run",
    TransportActions,
    keys=(
        Key("step", *KEYS["step"], "Step", STEP,
            "Take the token that the sampler picked; at an older token walk one forward; while running, "
            "pause.", TransportActions.step, Needs.DISTRIBUTION, "on"),
        Key("run", *KEYS["run"], "Run", STEP,
            "Step on until a stop is reached; again to pause.", TransportActions.run, Needs.DISTRIBUTION, "on"),
        Key("faster", *KEYS["faster"], "Faster", STEP,
            "Run at a faster pace: 1, 2, 5, 10, 20 steps a second or as fast as it goes; in a prefill, take larger "
            "chunks.", lambda own: own.pace(1), Needs.SESSION),
        Key("slower", *KEYS["slower"], "Slower", STEP, "Run at a slower pace; in a prefill, take smaller chunks.",
            lambda own: own.pace(-1), Needs.SESSION),
        Key("take_back", *KEYS["take_back"], "Take back", BRANCH,
            "Take back the last token of the completion; its branch is kept.",
            TransportActions.back, Needs.DISTRIBUTION, "back"),
    ),
    hints=(
        Hint(1, ("step",), "step", 12, When.LIVE),
        Hint(1, ("step",), "next", 12, When.REPLAY),
        Hint(1, ("step",), "pause", 12, When.RUNNING),
        Hint(2, ("run",), "run", 11, When.LIVE),
        Hint(2, ("run",), "play", 11, When.REPLAY),
        Hint(2, ("slower", "faster"), "pace", 11, When.RUNNING),
        Hint(8, ("take_back",), "take back", 2, When.LIVE),
        Hint(8, ("take_back",), "back", 9, When.REPLAY),
    ),
)  # fmt: skip
