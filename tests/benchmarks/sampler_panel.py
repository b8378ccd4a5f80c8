"""What the open sampler panel costs a run: steps a second in the real screen, panel closed and open, in turn.

    python -m tests.benchmarks.sampler_panel [--count ROUNDS]

Prints for each model the ratio of the medians (open to closed; 1 is no cost).
"""

from __future__ import annotations

import asyncio
import statistics
import time

from engine.protocol import Prefill
from engine.settings import LoadSettings, Settings
from inspector.app import InspectorApp
from inspector.config.preferences import Preferences
from inspector.views.sampler import SamplerPanel
from tests.benchmarks.vocabularies import SMALL, Asked, Figures, by_command

STEPS = 300
ROUNDS = 4
CLOSED, OPEN = (), ("2", "w")
SETTINGS = Settings(temp=0.8, top_p=0.95, seed=3, max_tokens=STEPS, min_tokens=STEPS + 1)


async def rate(model: str, keys: tuple[str, ...]) -> float:
    """Steps a second of one run in a screen of 120 by 40, after some keys were pressed."""
    load, prompt = LoadSettings(model=model), "Once upon a time"
    app = InspectorApp(load, SETTINGS, Prefill(prompt, False), begins=Preferences())
    async with app.run_test(size=(120, 40)) as pilot:
        timeline = app.controller.timeline
        while timeline.prompts.prefilled is None:
            await asyncio.sleep(0.05)
            timeline = app.controller.timeline
        await pilot.press(*keys)
        await asyncio.sleep(0.5)
        assert bool(app.main.query_one(SamplerPanel).region) == (keys == OPEN)
        begun = time.perf_counter()
        await pilot.press("r")
        while len(timeline.steps) < STEPS:
            await asyncio.sleep(0.01)
        return STEPS / (time.perf_counter() - begun)


async def measure(name: str, model: str, rounds: int) -> float:
    """Measure one model in turn and print; returns the ratio."""
    found: dict[tuple[str, ...], list[float]] = {CLOSED: [], OPEN: []}
    for turn in range(2 * rounds):
        keys = (CLOSED, OPEN)[turn % 2]
        found[keys].append(await rate(model, keys))
    for keys, rates in found.items():
        panel = "panel open" if keys else "panel closed"
        print(
            f"{name:12} {panel:14} {statistics.median(rates):6.1f} steps/s   ({min(rates):.1f} to {max(rates):.1f})"
        )
    ratio = statistics.median(found[OPEN]) / statistics.median(found[CLOSED])
    print(f"{name:12} ratio {ratio:.3f}")
    return ratio


def main(asked: Asked) -> Figures:
    """Measure and print."""
    ratios = []
    for name, model in asked.each(*SMALL):
        ratios.append(asyncio.run(measure(name, model, asked.times(ROUNDS))))
    return {"ratio": (min(ratios), max(ratios))}


if __name__ == "__main__":
    by_command(main, __doc__)
