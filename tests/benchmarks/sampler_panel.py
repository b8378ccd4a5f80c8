"""What the open sampler panel costs a run: steps a second in the real screen, panel closed and open, in turn.

    python -m tests.benchmarks.sampler_panel

Prints for each model the ratio of the medians last (open to closed; 1 is no cost).
"""

from __future__ import annotations

import asyncio
import statistics
import time

from engine.settings import LoadSettings, Settings
from inspector.app import InspectorApp
from inspector.config.preferences import Preferences
from tests.benchmarks import vocabularies

STEPS = 300
ROUNDS = 4
SETTINGS = Settings(temp=0.8, top_p=0.95, seed=3, max_tokens=STEPS, min_tokens=STEPS + 1)


async def rate(model: str, key: str | None) -> float:
    """Steps a second of one run in a screen of 120 by 40, after a key was pressed."""
    load, prompt = LoadSettings(model=model), "Once upon a time"
    app = InspectorApp(load, SETTINGS, prompt, chat=False, begins=Preferences())
    async with app.run_test(size=(120, 40)) as pilot:
        timeline = app.controller.timeline
        while timeline.prompts.prefilled is None:
            await asyncio.sleep(0.05)
            timeline = app.controller.timeline
        if key is not None:
            await pilot.press(key)
            await asyncio.sleep(0.5)
        begun = time.perf_counter()
        await pilot.press("r")
        while len(timeline.steps) < STEPS:
            await asyncio.sleep(0.01)
        return STEPS / (time.perf_counter() - begun)


async def measure(name: str, model: str) -> None:
    """Measure one model in turn and print."""
    found: dict[str | None, list[float]] = {None: [], "w": []}
    for turn in range(2 * ROUNDS):
        key = (None, "w")[turn % 2]
        found[key].append(await rate(model, key))
    for key, rates in found.items():
        panel = "panel open" if key else "panel closed"
        print(
            f"{name:12} {panel:14} {statistics.median(rates):6.1f} steps/s   ({min(rates):.1f} to {max(rates):.1f})"
        )
    ratio = statistics.median(found["w"]) / statistics.median(found[None])
    print(f"{name:12} ratio {ratio:.3f}", flush=True)


def main() -> None:
    """Measure and print."""
    for name, model in vocabularies.with_pocket():
        asyncio.run(measure(name, model))


if __name__ == "__main__":
    main()
