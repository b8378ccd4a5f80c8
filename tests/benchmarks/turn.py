"""A turn of the temperature on screen: from the key to the numbers painted that it would make, by model.

    python -m tests.benchmarks.turn [--count PRESSES]

The real screen of 120 by 40 with the real engine thread, at why a token was chosen, after some steps. The end is that
of the refresh that shows the answer for the token on show. The goal is 100 ms (p95) with 152,000 ids.
"""

from __future__ import annotations

import asyncio
import time

from textual.events import Key

from engine.protocol import Ended, Prefill, Record
from engine.settings import LoadSettings, Settings
from inspector.app import InspectorApp
from inspector.config.preferences import Preferences
from tests.benchmarks.key_to_paint import percentiles, spread
from tests.benchmarks.vocabularies import SMALL, Asked, Figures, by_command

ROUNDS, STEPS = 60, 20
SETTINGS = Settings(temp=0.8, top_p=0.95, repetition_penalty=1.1, seed=3, max_tokens=STEPS)


class Turns:
    """An application whose turns are timed.

    Args:
        model: What it steps.

    Attributes:
        shown: Milliseconds from each key to its answer painted.
    """

    def __init__(self, model: str) -> None:
        load = LoadSettings(model=model)
        self.app = InspectorApp(load, SETTINGS, Prefill("Once upon a time", False), begins=Preferences())
        self.app.controller.client.listen(self._take)
        self.shown: list[float] = []
        self._pressed: float | None = None

    def _take(self, record: Record) -> None:
        if isinstance(record, Ended) and record.command == "Explain" and not record.cancelled:
            self.app.main.call_after_refresh(self._painted)

    def _painted(self) -> None:
        if self._pressed is not None and self.app.controller.timeline.explanation() is not None:
            self.shown.append((time.perf_counter() - self._pressed) * 1000)
            self._pressed = None

    async def turn(self, key: str) -> None:
        """Press a key, and wait until its answer is there and nothing is asked any more."""
        self._pressed = time.perf_counter()
        self.app.post_message(Key(key, None))
        await self.rest()

    async def rest(self) -> None:
        """Wait until a key is answered, and the engine has nothing to do."""
        while self._pressed is not None or self.app.controller.client.requests:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)


async def measure(model: str, presses: int) -> Turns:
    """Turn back and forth, one press at a time; the first ten are not counted."""
    turns = Turns(model)
    async with turns.app.run_test(size=(120, 40)) as pilot:
        while turns.app.controller.timeline.prompts.prefilled is None:
            await asyncio.sleep(0.02)
        await pilot.press("r")
        while len(turns.app.controller.timeline.steps) < STEPS:
            await asyncio.sleep(0.02)
        await pilot.press("2", "w")
        await turns.rest()
        for number in range(presses + 10):
            await turns.turn("minus" if number % 20 < 10 else "plus")
    return turns


def main(asked: Asked) -> Figures:
    """Measure and print."""
    figures: Figures = {}
    for name, model in asked.each(*SMALL):
        shown = asyncio.run(measure(model, asked.times(ROUNDS))).shown[10:]
        print(f"{name:12} a turn to the answer painted  {spread(shown)}   ({len(shown)} presses)")
        figures[f"{name} p50"], figures[f"{name} p95"] = percentiles(shown)
    return figures


if __name__ == "__main__":
    by_command(main, __doc__)
