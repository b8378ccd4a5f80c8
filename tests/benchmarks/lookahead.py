"""Look-ahead on screen: from asking for 8 tokens behind 5 candidates to the last of them painted, by model.

    python -m tests.benchmarks.lookahead [--count TIMES]

The real screen of 120 by 40 with the real engine thread steps on greedily; after each step the look ahead is timed,
from the moment its command is sent to the end of the refresh that shows its last record. The goal on the pocket model
is 250 ms (p95).
"""

from __future__ import annotations

import asyncio
import time

from engine.protocol import LookAhead, LookedAhead, Prefill, Sent
from engine.settings import LoadSettings, Settings
from engine.thread import EngineThread
from inspector.app import InspectorApp
from inspector.config.preferences import Preferences
from tests.benchmarks.key_to_paint import PROMPT, percentiles, spread
from tests.benchmarks.vocabularies import SMALL, Asked, Figures, by_command

ROUNDS = 50


class Watch(EngineThread):
    """The engine's thread, and an application on it whose looks ahead are timed.

    Args:
        model: What it looks ahead with.
    """

    def __init__(self, model: str) -> None:
        super().__init__(lambda received: self.app.inbox.emit(received))
        load = LoadSettings(model=model)
        self.app = InspectorApp(load, Settings(), Prefill(PROMPT, False), engine=self, begins=Preferences())
        self._drain = self.app.inbox.drain
        self.app.inbox.drain = self.drain  # type: ignore[method-assign]
        self.asked: LookAhead | None = None
        self._sent = 0.0
        self.shown: list[float] = []
        """Milliseconds from sending the command to the paint of its last record."""
        self.engine: list[float] = []
        """Of those, what the engine took."""
        self.steps: list[float] = []
        """Milliseconds of the steps between, for how fast the machine was meanwhile."""

    def send(self, sent: Sent, session: int = 0) -> None:
        """Send a command, and note when."""
        if isinstance(sent.command, LookAhead):
            self.asked, self._sent = sent.command, time.perf_counter()
        super().send(sent, session)

    def drain(self) -> None:
        """Bring records to the screen, and note when the last one of a look is there."""
        last = [
            each.record
            for each in self.app.inbox.waiting
            if isinstance(each.record, LookedAhead) and each.record.last
        ]
        self._drain()
        for record in last:
            self.engine.append(record.ms)
            self.app.main.call_after_refresh(self._painted)

    def _painted(self) -> None:
        self.shown.append((time.perf_counter() - self._sent) * 1000)


async def measure(model: str, times: int) -> Watch:
    """Step and look ahead, so many times and once before."""
    watch = Watch(model)
    app = watch.app
    async with app.run_test(size=(120, 40)) as pilot:
        while app.controller.timeline.prompts.prefilled is None or app.controller.client.outstanding:
            await asyncio.sleep(0.05)
        for key in ("l", *["space"] * times):
            known = len(watch.shown)
            await pilot.press(key)
            while len(watch.shown) == known:
                await asyncio.sleep(0.01)
            assert (len(watch.asked.ids), watch.asked.tokens) == (5, 8)
            await asyncio.sleep(0.2)
        watch.steps = [step.ms.total for step in app.controller.timeline.steps]
    return watch


def main(asked: Asked) -> Figures:
    """Measure and print; the first look is not counted."""
    figures: Figures = {}
    for name, model in asked.each(*SMALL):
        watch = asyncio.run(measure(model, asked.times(ROUNDS)))
        print(
            f"{name:12} on screen    {spread(watch.shown[1:])}   (8 tokens, 5 candidates, {len(watch.shown) - 1} times)"
        )
        print(f"{name:12} engine alone {spread(watch.engine[1:])}")
        print(f"{name:12} a step       {spread(watch.steps)}")
        figures[f"{name} p50"], figures[f"{name} p95"] = percentiles(watch.shown[1:])
    return figures


if __name__ == "__main__":
    by_command(main, __doc__)
