"""A single step on screen: from the key to the new token painted, by model.

    python -m tests.benchmarks.key_to_paint

The real screen of 120 by 40 with the real engine thread. Space is handed to the application as the terminal's driver
does; the end is that of the refresh that shows the token in the text, or of the last refresh before all is still.
The goal is 30 ms (p95) until the text of the pocket model is painted.
"""

from __future__ import annotations

import asyncio
import statistics
import time

from textual.events import Key

from engine.protocol import Record, Step
from engine.settings import LoadSettings, Settings
from inspector.app import InspectorApp
from inspector.config.preferences import Preferences
from tests.benchmarks import vocabularies

ROUNDS = 100
PROMPT = "Once upon a time, there was a little girl named Lily."


class Watch:
    """An application whose steps are timed.

    Args:
        model: What it steps.

    Attributes:
        engine: Milliseconds that each step took in the engine.
        shown: Milliseconds from each key to its token painted.
    """

    def __init__(self, model: str) -> None:
        load, settings = LoadSettings(model=model), Settings(max_tokens=10**6)
        self.app = InspectorApp(load, settings, PROMPT, chat=False, begins=Preferences())
        self.app.controller.client.listeners.append(self._take)
        self.engine: list[float] = []
        self.shown: list[float] = []
        self._pressed = 0.0

    def _take(self, record: Record) -> None:
        if isinstance(record, Step):
            self.engine.append(record.ms.total)
            self.app.main.call_after_refresh(self._painted)

    def _painted(self) -> None:
        self.shown.append((time.perf_counter() - self._pressed) * 1000)

    async def step(self) -> None:
        """Press space, and wait until the token is there and the engine has nothing to do."""
        known = len(self.shown)
        self._pressed = time.perf_counter()
        self.app.post_message(Key("space", " "))
        while len(self.shown) == known or self.app.controller.client.outstanding:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)


async def measure(model: str) -> Watch:
    """Take steps, one at a time; the first ten are not counted."""
    watch = Watch(model)
    async with watch.app.run_test(size=(120, 40)):
        while (
            watch.app.controller.timeline.prompts.prefilled is None or watch.app.controller.client.outstanding
        ):
            await asyncio.sleep(0.02)
        for _ in range(ROUNDS + 10):
            await watch.step()
    return watch


def spread(values: list[float]) -> str:
    """Median and 95th percentile."""
    return f"p50 {statistics.median(values):6.1f} ms   p95 {statistics.quantiles(values, n=20)[-1]:6.1f} ms"


def main() -> None:
    """Measure and print."""
    for name, model in vocabularies.with_pocket():
        watch = asyncio.run(measure(model))
        engine, shown = watch.engine[10:], watch.shown[10:]
        rest = [whole - own for whole, own in zip(shown, engine, strict=True)]
        print(f"{name:12} key to the token painted  {spread(shown)}   ({ROUNDS} steps)")
        print(f"{name:12} of that, the engine       {spread(engine)}")
        print(f"{name:12} all else                  {spread(rest)}", flush=True)


if __name__ == "__main__":
    main()
