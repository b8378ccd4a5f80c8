"""The what-if of the screen on the real engine and the pocket model."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from engine.protocol import Prefill
from engine.settings import LoadSettings, Settings
from inspector.app import InspectorApp
from inspector.state.timeline import other
from inspector.views.sampler import trial_summary
from inspector.widgets.form import SettingsForm

USED = Settings(temp=0.9, top_p=0.95, seed=7, max_tokens=40, repetition_penalty=1.1, xtc_probability=0.3)


async def until(condition: Callable[[], object], seconds: float = 120.0) -> None:
    """Wait for the engine."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the engine took too long"
        await asyncio.sleep(0.01)


@pytest.mark.slow
async def test_the_settings_used_change_no_step_and_others_are_gone_on_with() -> None:
    app = InspectorApp(LoadSettings(), USED, Prefill("Once upon a time", False))

    async with app.run_test(size=(120, 40)) as pilot:
        timeline = lambda: app.controller.timeline  # noqa: E731
        await until(lambda: timeline().prompts.prefilled)
        await pilot.press("r")
        await until(lambda: len(timeline().steps) == 40 and not timeline().running)
        path = [step.id for step in timeline().steps]

        await pilot.press("s")
        await until(lambda: timeline().trial and timeline().trial.answered is not None)
        assert trial_summary(timeline()) == "0 of 40 steps would differ"

        app.top.query_one(SettingsForm).field.value = "1.6"
        await until(lambda: timeline().trial.settings.temp == 1.6 and timeline().trial.answered is not None)
        await pilot.press("pageup")
        differing = other(timeline().trial, timeline().selected)
        assert differing is not None
        number = timeline().selected.index
        await pilot.press("ctrl+s")
        await until(lambda: not app.controller.client.outstanding)
        assert [step.id for step in timeline().steps] == path[:number]
        assert timeline().next.picked == differing.picked
        await pilot.press("space")
        await until(lambda: len(timeline().steps) == number + 1)
        assert timeline().steps[-1].id == differing.picked
    assert app.closed_in_time
