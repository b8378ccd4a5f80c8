"""What a long session holds: resident memory over the steps of a run on the screen, and over sessions of an engine.

    python -m tests.benchmarks.memory [--count STEPS]

A line every 2,000 steps, with the median of 20 looks, and every 50 sessions, of which there are a fiftieth as many; the
last of each part has KB a step, and a session, of its second half.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from engine import protocol
from engine.settings import LoadSettings, Settings
from engine.thread import EngineThread
from inspector.app import InspectorApp
from inspector.config.preferences import Preferences
from tests.benchmarks.vocabularies import SMALL, Asked, Figures, by_command

PROMPT = "Once upon a time, there was a little girl named Lily."
EVERY, EACH = 2000, 50
LOOKS = 20
"""In each 2,000 steps. A cache that grows holds its arrays twice for a moment, up to 78 MiB here, and MLX's pool holds
some of the old ones for some steps more: the median is of what stays."""
SETTINGS = Settings(temp=1.0, max_tokens=10**9, candidates=20)


def resident() -> float:
    """KB of this process that are in memory."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024


def rise(values: Sequence[tuple[int, float]]) -> float:
    """KB for each of what was counted: the slope of a line through the second half of the measurements.

    Two of them alone would tell when MLX's pool was released last: with a large KV cache that is 20 MB more or less.
    """
    half = values[(len(values) - 1) // 2 :]
    return float(np.polyfit(*zip(*half, strict=True), 1)[0]) if len(half) > 1 else 0.0


async def on_the_screen(model: str, steps: int) -> float:
    """Run a model on the screen, with its session written to a file; returns KB a step, the KV cache aside."""
    app = InspectorApp(
        LoadSettings(model=model), SETTINGS, protocol.Prefill(PROMPT, False), begins=Preferences()
    )
    seen: list[tuple[int, float]] = []
    async with app.run_test(size=(120, 40)):
        client = app.controller.client
        while client.timeline.prompts.prefilled is None or client.outstanding:
            await asyncio.sleep(0.02)
        timeline = client.timeline
        looks: list[float] = []
        while len(seen) < steps // EVERY:
            if not client.outstanding:  # an end of sequence ended the run before
                client.do(protocol.Run())
            await asyncio.sleep(0.02)
            count = len(timeline.step_slots)
            if timeline.kv is None or count < EVERY * len(seen) + EVERY // LOOKS * (len(looks) + 1):
                continue
            kv = timeline.kv.allocated_bytes / 1024
            looks.append(resident() - kv)
            if len(looks) == LOOKS:
                seen.append((count, float(np.median(looks))))
                looks.clear()
                print(
                    f"{count:8,} steps {(seen[-1][1] + kv) / 1024:7.1f} MiB, of it {kv / 1024:6.1f} of the KV cache; "
                    f"without it {rise(seen):6.2f} KB a step"
                )
        client.stop()
        while client.outstanding:
            await asyncio.sleep(0.02)
    return rise(seen)


def of_an_engine(model: str, sessions: int) -> float:
    """Give one engine prompt after prompt, as many sessions; returns KB a session."""
    import queue

    inbox: queue.SimpleQueue[protocol.Received] = queue.SimpleQueue()
    engine = EngineThread(inbox.put)
    engine.start()

    def done(command: protocol.Command) -> None:
        engine.send(protocol.Sent(command, 1))
        while not isinstance(record := inbox.get().record, protocol.Ended):
            assert not isinstance(record, protocol.Failure), record

    seen: list[tuple[int, float]] = []
    for number in range(1, sessions + 1):
        done(protocol.Load(LoadSettings(model=model)))
        done(protocol.Configure(SETTINGS))
        done(protocol.Prefill(PROMPT, chat=False))
        for _ in range(5):
            done(protocol.TakeStep())
        if number % EACH == 0:
            seen.append((number, resident()))
            print(f"{number:8,} sessions {seen[-1][1] / 1024:9.1f} MiB  {rise(seen):6.2f} KB a session")
    engine.close()
    return rise(seen)


def main(asked: Asked) -> Figures:
    """Measure and print."""
    figures: Figures = {}
    steps = asked.times(20_000)
    os.environ["XDG_STATE_HOME"] = str(asked.directory / "state")
    if not asked.models:
        sessions = steps // EACH
        figures["session KB"] = of_an_engine(asked.path("4k"), sessions)
        print(f"an engine over {sessions} sessions: {figures['session KB']:.2f} KB a session")
    for name, model in asked.each(*SMALL):
        figures[f"{name} KB"] = asyncio.run(on_the_screen(model, steps))
        print(
            f"{name:12} the screen over {steps:,} steps: {figures[f'{name} KB']:.2f} KB a step beside the KV cache"
        )
    return figures


if __name__ == "__main__":
    by_command(main, __doc__)
