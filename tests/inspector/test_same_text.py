"""One seed, one text: in the screen, headless, in a batch, in Python, and on every run; with the model's own settings,
too."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Sequence

import pytest

from inspector.api import open
from inspector.app import InspectorApp
from inspector.cli.arguments import request_from
from inspector.cli.flags import parsed
from inspector.cli.screen import screen_parser
from inspector.main.panels.header import HeaderLine

STEPS = 25
FLAGS = ["-p", "Once upon a time", "--seed", "21", "--max-tokens", str(STEPS)]


def headless_ids(subcommand: str, sampling: Sequence[str]) -> list[int]:
    command = [sys.executable, "-m", "inspector", subcommand, *FLAGS, *sampling, "--jsonl"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    steps = [event for event in events if event["event"] in ("Step", "BatchStep")]
    return [token["id"] for step in steps for token in step.get("tokens", [step])]


async def screen_ids(sampling: Sequence[str]) -> tuple[list[int], str]:
    request = request_from(parsed(screen_parser(), [*FLAGS, *sampling]), default_prompt=True)
    app = InspectorApp(request.load, request.settings, request.prefill, given=request.given_settings)
    async with app.run_test(size=(120, 40)) as pilot:
        while app.controller.timeline.prompts.prefilled is None:
            await asyncio.sleep(0.02)
        await pilot.press("space", "space", "r")
        while len(app.controller.timeline.steps) < STEPS:
            await asyncio.sleep(0.02)
        await pilot.pause()
        return [step.id for step in app.controller.timeline.steps], str(
            app.main.query_one(HeaderLine).render_line(0).text
        )


@pytest.mark.parametrize(
    ("sampling", "settings", "header"),
    [
        ((), {}, "model's defaults T 0.8  top-p 0.95  seed 21"),
        (("--temp", "0.9", "--top-p", "0.9"), {"temp": 0.9, "top_p": 0.9}, "T 0.9  top-p 0.9  seed 21 "),
    ],
)
def test_the_same_seed_gives_the_same_text_everywhere(
    sampling: Sequence[str], settings: dict[str, float], header: str
) -> None:
    expected = headless_ids("generate", sampling)
    assert len(expected) == STEPS
    ids, line = asyncio.run(asyncio.wait_for(screen_ids(sampling), 60))
    assert ids == expected
    assert header in line
    with open("pocket", prompt="Once upon a time", seed=21, **settings) as session:
        assert [step.id for step in session.run(STEPS).wait().steps] == expected
    assert headless_ids("batch", sampling) == expected
    assert headless_ids("generate", sampling) == expected
