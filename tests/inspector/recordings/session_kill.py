"""Real sessions, killed while they run: `python -m tests.inspector.recordings.session_kill DIRECTORY COUNT [SEED]`.

Each is the application itself on the bundled model, with its engine's thread and its journal, running at full pace in a
forked process that gets SIGKILL at a random moment. Then its file is resumed. Prints a line of JSON for each.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from engine.protocol import Prefill, Record, Step
from engine.recording import load
from engine.settings import LoadSettings, Settings

WARM = 25
"""Steps that are taken before the moment may come."""


async def live(directory: Path, pipe: int) -> None:
    """Run a session until killed, telling each step's node and when it was shown through a pipe."""
    from inspector.app import InspectorApp

    app = InspectorApp(
        LoadSettings(),
        Settings(temp=1.0, seed=3, max_tokens=400),
        Prefill("Once upon a time", False),
        save=directory,
    )

    def tell(record: Record) -> None:
        if isinstance(record, Step):
            os.write(pipe, struct.pack("<id", record.node, time.monotonic()))

    app.controller.client.listen(tell)
    async with app.run_test(size=(80, 24)) as pilot:
        while not app.controller.stepping:
            await pilot.pause(0.02)
        while True:
            if not app.controller.timeline.running:
                await pilot.press("home", "right", "right", "down", "enter", "r")
            await pilot.pause(0.02)


def killed(directory: Path, chance: random.Random) -> tuple[float, list[tuple[int, float]]]:
    """Run one and kill it; returns when, and the steps that it told."""
    reading, writing = os.pipe()
    command = [
        sys.executable,
        "-m",
        "tests.inspector.recordings.session_kill",
        "live",
        str(directory),
        str(writing),
    ]
    child = subprocess.Popen(
        command, pass_fds=[writing], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    os.close(writing)
    data = b""
    while len(data) < WARM * 12:
        piece = os.read(reading, 12 * 100)
        assert piece, "the session ended by itself"
        data += piece
    time.sleep(chance.random())
    at = time.monotonic()
    child.send_signal(signal.SIGKILL)
    child.wait()
    with os.fdopen(reading, "rb") as pipe:
        data += pipe.read()
    return at, [
        struct.unpack("<id", data[place : place + 12]) for place in range(0, len(data) // 12 * 12, 12)
    ]


async def resume(path: Path, directory: Path) -> dict[str, Any]:
    """Resume a session on the real model and take a step; returns what came of it."""
    from inspector.app import InspectorApp
    from inspector.session.playback import Opening

    app = InspectorApp(LoadSettings(), Settings(), save=directory, trace=Opening(path, live=True))
    async with app.run_test(size=(80, 24)) as pilot:
        end = time.monotonic() + 60
        while not app.main.status.answer.startswith("Live"):
            assert time.monotonic() < end, app.main.status.answer
            await pilot.pause(0.02)
        said = app.main.status.answer
        tip, nodes = app.controller.timeline.tip, len(app.controller.timeline.tree.nodes)
        await pilot.press("space")
        while app.controller.timeline.tip == tip:
            await pilot.pause(0.02)
    return {"said": said, "nodes": nodes}


def one(directory: Path, chance: random.Random) -> dict[str, Any]:
    """Kill and resume one session."""
    at, told = killed(directory, chance)
    (path,) = directory.iterdir()
    steps = [entry.value for entry in load(path, torn_ok=True).entries if isinstance(entry.value, Step)]
    lost = [when for _, when in told[len(steps) :]]
    assert [step.node for step in steps[: len(told)]] == [node for node, _ in told[: len(steps)]]
    result = asyncio.run(resume(path, directory))
    after = load(path, torn_ok=True)
    again = [entry.value for entry in after.entries if isinstance(entry.value, Step)]
    assert again[: len(steps)] == steps
    assert len(again) == len(steps) + 1
    assert after.torn == 0
    return {
        "told": len(told),
        "found": len(steps),
        "lost_s": round(at - lost[0], 3) if lost else 0.0,
        **result,
    }


def main(directory: str, count: str, seed: str = "0") -> None:
    """Kill so many."""
    chance = random.Random(int(seed))
    for number in range(int(count)):
        place = Path(directory) / str(number)
        print(json.dumps(one(place, chance), ensure_ascii=False), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "live":
        asyncio.run(live(Path(sys.argv[2]), int(sys.argv[3])))
    else:
        main(*sys.argv[1:])
