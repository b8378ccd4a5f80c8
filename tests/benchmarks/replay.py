"""A recording of 50,000 steps on the screen: how soon it is there, how long its frames take, and how walking feels.

    python -m tests.benchmarks.replay [--count STEPS]

Bounds: the first steps on screen within 1 s of opening; a walk of one token within a frame (33 ms) once it is read.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path

from engine.recording import save_as
from engine.settings import LoadSettings, Settings
from inspector.app import InspectorApp
from inspector.config.preferences import Preferences
from inspector.session.playback import Opening
from tests.benchmarks.trace import long, recorded
from tests.benchmarks.vocabularies import SMALL, Asked, Figures, by_command


async def measure(path: Path) -> float:
    """Open, wait until all is read, walk, seek and play; returns seconds until the first steps."""
    app = InspectorApp(LoadSettings(), Settings(), trace=Opening(path), begins=Preferences())
    begun = time.perf_counter()
    async with app.run_test(size=(120, 40)) as pilot:
        while not app.controller.timeline.steps:
            await pilot.pause(0.005)
        first = time.perf_counter() - begun
        print(f"first steps on the timeline: {first:.2f} s, the program's start included")
        frames = await until_settled(app)
        print(f"all of it: {time.perf_counter() - begun:.1f} s; {told(frames)}")
        print(f"walking one back: {told(await pressed(app, pilot, 'left', 30))}")
        print(f"ten back: {told(await pressed(app, pilot, 'pageup', 30))}")
        print(
            f"home and end: {told(await pressed(app, pilot, 'home', 4) + await pressed(app, pilot, 'end', 4))}"
        )
        begun = time.perf_counter()
        await pilot.press("backspace")
        frames = await until_settled(app)
        print(f"one step back in time: {time.perf_counter() - begun:.1f} s; {told(frames)}")
    return first


async def until_settled(app: InspectorApp) -> list[float]:
    """Seconds of each frame until all is read and shown."""
    frames = []
    while app.playback.player is not None and not app.playback.player.settled:
        began = time.perf_counter()
        app.playback.tick()
        frames.append(time.perf_counter() - began)
        await asyncio.sleep(0.001)
    return frames


async def pressed(app: InspectorApp, pilot: object, key: str, times: int) -> list[float]:
    """Seconds from each press to the screen painted anew."""
    found = []
    for _ in range(times):
        began = time.perf_counter()
        await pilot.press(key)  # type: ignore[attr-defined]
        found.append(time.perf_counter() - began)
    return found


def told(seconds: list[float]) -> str:
    """Median and most, in ms; a short recording is there before a frame could be timed."""
    if not seconds:
        return "no frame"
    middle, most = statistics.median(seconds) * 1000, max(seconds) * 1000
    return f"{len(seconds)} x p50 {middle:.0f} ms, most {most:.0f} ms"


def main(asked: Asked) -> Figures:
    """Measure and print."""
    figures: Figures = {}
    for name, model in asked.each(*SMALL):
        records = recorded(Settings(temp=0.8, top_p=0.95, seed=7), model)
        for suffix in (".trace", ".trace.zst"):
            path = asked.directory / f"{name}{suffix}"
            save_as(path, long(records, asked.times(50_000)), "benchmark 1")
            print(f"-- {path.name}, {path.stat().st_size / 2**20:.1f} MiB")
            figures[f"{name} first s"] = asyncio.run(measure(path))
            path.unlink()
    return figures


if __name__ == "__main__":
    by_command(main, __doc__)
