"""What is inside the pocket model, on the real engine; and the same from a recording, with no engine."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from engine.protocol import Loading
from engine.settings import LoadSettings, Settings
from engine.trace import Entry, save_as
from inspector.app import InspectorApp
from inspector.tools.lens.screen import LensScreen
from inspector.tools.modules.experts import ExpertsScreen
from inspector.tools.modules.screen import ModulesScreen
from tests.inspector.fakes import Session
from tests.inspector.rig import Rig
from tests.inspector.tools.modules.test_lines import MODULES
from tests.inspector.tools.modules.test_screen import experts
from tests.inspector.tools.recordings.test_replay_screen import replayed
from tests.inspector.tools.sampler.test_what_if_real import until


def test_the_pocket_model_is_read_before_its_sums_are_shown_and_a_layer_leads_to_the_lens() -> None:
    app = InspectorApp(LoadSettings(), Settings(), "Once upon a time", False)

    async def test() -> None:
        async with app.run_test(size=(120, 40)) as pilot:
            idle = lambda: not app.controller.client.outstanding  # noqa: E731
            await until(lambda: app.controller.timeline.prompts.prefilled and idle())
            await pilot.press("O")
            await until(lambda: isinstance(app.screen, ModulesScreen) and app.screen.answer is not None)
            screen, facts = app.screen, app.controller.timeline.facts
            assert isinstance(screen, ModulesScreen)
            assert facts is not None
            assert screen.answer is not None
            assert (screen.answer.parameters, screen.answer.bytes) == (facts.parameters, facts.weight_bytes)
            await pilot.press("down", "down", "enter")
            await until(lambda: isinstance(app.screen, LensScreen) and app.screen.answer is not None)
            await pilot.press("ampersand", "escape")
            await until(idle)

    asyncio.run(test())


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A session in which somebody looked at the modules, and at the experts of the last token."""
    session = Session()
    session.load()
    session.open()
    session.steps(3)
    timeline = session.timeline()
    facts = timeline.facts
    assert facts is not None
    seen = [replace(MODULES, model=facts.path, bytes=facts.weight_bytes), experts(timeline.before)]
    entries = [Entry(LoadSettings("pocket"), 0.0)]
    kept = [record for record in session.records if not isinstance(record, Loading)]
    entries += [Entry(record, number * 0.1) for number, record in enumerate([*kept, *seen])]
    save_as(tmp_path / "a.jsonl", entries, "test 1")
    return tmp_path / "a.jsonl"


def test_a_recording_shows_what_was_looked_at(recording: Path) -> None:
    async def test(rig: Rig) -> None:
        await rig.press("O")
        assert isinstance(rig.app.screen, ModulesScreen)
        assert "▾ layers 1 to 3" in rig.screen_text()
        await rig.press("escape", "ampersand")
        assert isinstance(rig.app.screen, ExpertsScreen)
        assert "0.75" in rig.screen_text()
        await rig.press("left")
        assert "was not recorded" in rig.screen_text()
        assert rig.engine.sent == []

    replayed(test, recording)
