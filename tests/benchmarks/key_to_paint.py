"""A single step on screen: from the key to the new token painted, by model.

    python -m tests.benchmarks.key_to_paint [--count STEPS]

The real screen of 120 by 40 with the real engine thread. Space is handed to the application as the terminal's driver
does; the end is that of the refresh that shows the token in the text, or of the last refresh before all is still.
The goal is 30 ms (p95) until the text of the pocket model is painted.
"""

from __future__ import annotations

import asyncio
import statistics
import time

from textual.events import Key

from engine.protocol import Prefill, Record, Step
from engine.settings import LoadSettings, Settings
from inspector.app import InspectorApp
from inspector.config.preferences import Preferences
from tests.benchmarks.vocabularies import MODELS, Asked, Figures, by_command

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
        self.app = InspectorApp(load, settings, Prefill(PROMPT, False), begins=Preferences())
        self.app.controller.client.listen(self._take)
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


async def measure(model: str, steps: int) -> Watch:
    """Take steps, one at a time; the first ten are not counted."""
    watch = Watch(model)
    async with watch.app.run_test(size=(120, 40)):
        while (
            watch.app.controller.timeline.prompts.prefilled is None or watch.app.controller.client.outstanding
        ):
            await asyncio.sleep(0.02)
        for _ in range(steps + 10):
            await watch.step()
    return watch


def percentiles(values: list[float]) -> tuple[float, float]:
    """Median and 95th percentile."""
    return statistics.median(values), statistics.quantiles(values, n=20)[-1]


def spread(values: list[float]) -> str:
    """Both in words."""
    middle, late = percentiles(values)
    return f"p50 {middle:6.1f} ms   p95 {late:6.1f} ms"


def main(asked: Asked) -> Figures:
    """Measure and print."""
    figures: Figures = {}
    for name, model in asked.each(*MODELS):
        watch = asyncio.run(measure(model, asked.times(ROUNDS)))
        engine, shown = watch.engine[10:], watch.shown[10:]
        rest = [whole - own for whole, own in zip(shown, engine, strict=True)]
        print(f"{name:12} key to the token painted  {spread(shown)}   ({len(shown)} steps)")
        print(f"{name:12} of that, the engine       {spread(engine)}")
        print(f"{name:12} all else                  {spread(rest)}")
        figures[f"{name} p50"], figures[f"{name} p95"] = percentiles(shown)
    return figures


if __name__ == "__main__":
    by_command(main, __doc__)
