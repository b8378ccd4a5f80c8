"""A recording with rows on the screen: what-if, raw logits and the vocabulary search, with no engine behind it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from textual.widgets import Input

from engine import protocol
from engine.protocol import Candidate, LogitsRow, TokensFound, WhatIfAnswered
from engine.settings import LoadSettings, Settings
from engine.trace import save_as
from inspector.app import InspectorApp
from inspector.keys import with_keys
from inspector.session.playback import Opening
from inspector.session.replay_backend import REFUSED
from inspector.tools.find.dialog import MatchList
from inspector.tools.sampler.panel import trial_summary
from inspector.tools.sampler.what_if import TRIED
from inspector.widgets.fields import SafeInput
from tests.engine.logits.recording import Recording
from tests.inspector.quick_clock import run_quickly
from tests.inspector.rig import FakeEngine, Rig

USED = Settings(temp=0.9, top_p=0.95, seed=7, max_tokens=30, repetition_penalty=1.1, candidates=8)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recording, Path]:
    """Thirty steps of the pocket model with their rows, and the file that they were saved to."""
    recording = Recording(LoadSettings(record_logits=True))
    recording.do(protocol.Configure(USED))
    recording.do(protocol.Prefill("Once upon a time", chat=False))
    recording.do(protocol.Run())
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl.gz"
    save_as(path, recording.entries, "test")
    return recording, path


def replayed(
    path: Path, test: Callable[[Rig], Awaitable[None]], size: tuple[int, int] = (120, 40)
) -> FakeEngine:
    """Run a test on a recording that is shown whole; returns the engine, which nobody may have asked anything."""
    engine = FakeEngine()
    app = InspectorApp(LoadSettings(), Settings(), engine=engine, trace=Opening(path))

    async def body() -> None:
        async with app.run_test(size=size) as pilot:
            rig = Rig(pilot, engine, None)  # type: ignore[arg-type]
            await rig.until(lambda: app.playback.player is not None and app.playback.player.at_end)
            await test(rig)

    run_quickly(body())
    return engine


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
def test_settings_are_tried_and_mark_the_steps_that_would_differ(
    live: tuple[Recording, Path], size: tuple[int, int]
) -> None:
    recording, path = live
    other = replace(USED, temp=1.7)
    expected = recording.ask(protocol.WhatIf(other, recording.steps[-1].node))
    assert isinstance(expected, WhatIfAnswered)
    differing = sum(not step.same for step in expected.steps)
    assert differing

    async def test(rig: Rig) -> None:
        await rig.press("s")
        await rig.until(lambda: rig.timeline.trial and rig.timeline.trial.answered is not None)
        assert trial_summary(rig.timeline) == "0 of 30 steps would differ"
        rig.app.screen.query_one("#field-temp", SafeInput).value = "1.7"
        await rig.until(
            lambda: rig.timeline.trial.settings.temp == 1.7 and rig.timeline.trial.answered is not None
        )
        await rig.until(lambda: trial_summary(rig.timeline) == f"{differing} of 30 steps would differ")
        assert rig.timeline.trial.answers == {step.node: step for step in expected.steps}
        await rig.press("pageup")
        step = rig.timeline.selected
        told = recording.ask(protocol.Explain(step.parent, other))
        await rig.until(lambda: (said := rig.timeline.explanation()) and said.explained == told)
        await rig.press("ctrl+s")
        assert rig.status == with_keys(TRIED)
        assert rig.timeline.trial is None
        assert rig.app.controller.queries.in_force == USED

    engine = replayed(path, test, size)
    assert not engine.sent
    assert not engine.asked


def test_the_stages_show_raw_logits(live: tuple[Recording, Path]) -> None:
    recording, path = live

    async def test(rig: Rig) -> None:
        await rig.press("w", "left", "left")
        step = rig.timeline.selected
        told = recording.ask(protocol.Explain(step.parent, USED))
        assert isinstance(told, protocol.Explained)
        await rig.until(lambda: (said := rig.timeline.explanation()) and said.explained == told)
        await rig.until(lambda: f"{told.logits[0]:.2f}" in rig.screen_text())

    replayed(path, test)


def test_the_whole_vocabulary_is_searched(live: tuple[Recording, Path]) -> None:
    recording, path = live
    found = recording.ask(protocol.FindTokens(recording.steps[-1].node, " drag", 100))
    assert isinstance(found, TokensFound)
    shown: tuple[Candidate, ...] = recording.steps[-1].next.candidates
    assert {match.id for match in found.matches} - {candidate.id for candidate in shown}

    async def test(rig: Rig) -> None:
        await rig.press("slash")
        rig.app.screen.query_one("#find-query", Input).value = " drag"
        matches = rig.app.screen.query_one(MatchList)
        await rig.until(lambda: matches.matches == found.matches)

    replayed(path, test)


def test_without_rows_settings_are_refused_and_the_rest_is_as_it_was(
    live: tuple[Recording, Path], tmp_path: Path
) -> None:
    recording, _ = live
    rest = [entry for entry in recording.entries if not isinstance(entry.value, LogitsRow)]
    save_as(tmp_path / "plain.jsonl", rest, "test")

    async def test(rig: Rig) -> None:
        await rig.press("s")
        assert rig.status == with_keys(REFUSED)
        await rig.press("w")
        await rig.until(lambda: rig.timeline.explanation() is not None)
        assert rig.timeline.explanation().failure.message == "The sampler's stages were not recorded here."
        await rig.until(lambda: "were not recorded here. G goes on" in rig.screen_text())

    replayed(tmp_path / "plain.jsonl", test)


def test_steps_without_a_row_are_said_to_be_not_recorded(
    live: tuple[Recording, Path], tmp_path: Path
) -> None:
    recording, _ = live
    lacks = {step.parent for step in recording.steps[3:7]}
    rest = [
        entry for entry in recording.entries
        if not (isinstance(entry.value, LogitsRow) and entry.value.node in lacks)
    ]  # fmt: skip
    save_as(tmp_path / "part.jsonl", rest, "test")

    async def test(rig: Rig) -> None:
        await rig.press("s")
        await rig.until(lambda: rig.timeline.trial and rig.timeline.trial.answered is not None)
        told = "0 of 26 steps would differ; 4 can't be answered: their logits were not recorded"
        assert trial_summary(rig.timeline) == told

    replayed(tmp_path / "part.jsonl", test)
