"""One seed, one text: in the screen, headless, and on every run."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

from engine.settings import LoadSettings, Settings
from inspector.app import InspectorApp

STEPS = 25


def headless_ids() -> list[int]:
    sampling = ["--temp", "0.9", "--top-p", "0.9", "--seed", "21", "--max-tokens", str(STEPS)]
    flags = ["-p", "Once upon a time", "--ignore-chat-template", *sampling, "--jsonl"]
    command = [sys.executable, "-m", "inspector", "generate", *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    return [event["id"] for event in events if event["event"] == "step"]


async def screen_ids() -> list[int]:
    settings = Settings(temp=0.9, top_p=0.9, seed=21, max_tokens=STEPS)
    app = InspectorApp(LoadSettings(), settings, "Once upon a time", chat=False)
    async with app.run_test(size=(80, 24)) as pilot:
        while app.controller.timeline.prompts.prefilled is None:
            await asyncio.sleep(0.02)
        await pilot.press("space", "space", "r")
        while len(app.controller.timeline.steps) < STEPS:
            await asyncio.sleep(0.02)
        return [step.id for step in app.controller.timeline.steps]


def test_the_same_seed_gives_the_same_text_in_the_screen_and_headless() -> None:
    expected = headless_ids()
    assert len(expected) == STEPS
    assert asyncio.run(asyncio.wait_for(screen_ids(), 60)) == expected
    assert headless_ids() == expected
