"""Recorded measurements, searches, batches and draws are shown without a model, up to where the replay is."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.protocol import Explained, KVCompared, Marked, RaceEnded, RaceOpened, Record, Step
from engine.recording import Entry, save_as
from engine.settings import LoadSettings
from inspector.keys import with_keys
from inspector.main.narration import CaptionLine
from inspector.session.replay_backend import REFUSED
from inspector.state.beams import BeamHistory
from inspector.views.batch import BatchView
from inspector.views.beams import BeamsView
from inspector.views.costs import CostsView
from inspector.views.draws import DrawsView
from inspector.views.race import RaceView
from tests.inspector.fake_beams import search
from tests.inspector.fakes import Session
from tests.inspector.rig import Rig
from tests.inspector.told_batch import BEGINNING, COMPARED, DRAWN, REST, draws
from tests.inspector.views.costs.test_screen import OWN, PROFILED, QUARTER, ROOFLINE
from tests.inspector.views.race.test_screen import HOW, steps
from tests.inspector.views.recordings.test_replay_screen import replayed

Told = list[Record]
KV_COMPARED = [KVCompared(8, 11, (OWN,), "x", False), KVCompared(8, 11, (OWN, QUARTER), "x", True)]
WATCH, OVER, PANEL = (
    Marked(8, caption="Watch [it]\x1b", tool="race"),
    Marked(8, caption="It is over", tool="race"),
    Marked(9, caption="The panel", tool="sampler"),
)


def race(node: int, first: int, last: int, to: int) -> Told:
    """A race to so many tokens, as far as it came."""
    ended: Told = [RaceEnded(last - first, 1.0, 2.0, (), 0.0)] if to == last else []
    return [RaceOpened(node, first, last, 5, HOW), *steps(first, to), *ended]


def write(path: Path, *parts: Told) -> Session:
    """A session of three steps; each part follows, with one more step after it."""
    session = Session()
    session.load()
    session.open()
    session.steps(3)
    for part in parts:
        session.records += part
        session.steps(1)
    entries = [Entry(LoadSettings("pocket"), 0.0)]
    entries += [Entry(record, number / 10) for number, record in enumerate(session.records)]
    save_as(path, entries, "test 1")
    return session


@pytest.fixture
def path(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A recording of a session with the parts that the parameter names."""
    write(tmp_path / "a.trace", *getattr(request, "param", ()))
    return tmp_path / "a.trace"


async def settle(rig: Rig, *keys: str) -> None:
    """Press keys, each once the recording shows what the one before asked for."""
    for key in keys:
        await rig.press(key)
        await rig.until(lambda: rig.app.playback.player.settled)
        await rig.pilot.pause()


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", [[[*race(8, 16, 24, 18), *race(8, 18, 24, 24)]]], indirect=True
)  # it was paused once
async def test_a_recorded_race_is_shown_as_far_as_the_replay_is_and_grows_with_it(
    replay: Rig, path: Path
) -> None:
    await replay.press("z")
    assert isinstance(replay.app.top, RaceView)
    assert "Race · recorded · pocket · 16 to 24 tokens" in replay.screen_text()
    assert "Recorded, 24 of 24 tokens. A race needs a live model: esc, then G" in replay.screen_text()
    assert replay.app.top.steps[-1].cached_total_ms == 8 * 5.0  # over the pause
    await settle(replay, "backspace", "backspace")  # the step after it, its last step
    assert "Recorded, 23 of 24 tokens" in replay.screen_text()
    await settle(replay, "space")
    assert "Recorded, 24 of 24 tokens" in replay.screen_text()
    for key in ("enter", "n", "right"):
        await replay.press("escape", "z", key)
        assert "needs a live model" in replay.app.top.said
    await settle(replay, *["backspace"] * 9)
    assert "No race was recorded up to here" in replay.screen_text()
    await replay.press("escape", "z")
    assert replay.status == with_keys(REFUSED)
    assert replay.engine.sent == []


def test_half_a_race_is_shown_and_that_of_another_prompt_is_not(tmp_path):
    path = tmp_path / "a.trace"
    session = write(path, race(8, 16, 24, 19), [*steps(16, 18)], race(9, 16, 32, 20))
    opened = len(session.records)
    session.open()
    begun = len(session.records)
    session.steps(2)
    session.records += race(session.node, 16, 64, 17)
    save_as(path, [Entry(record, n / 10) for n, record in enumerate(session.records)], "test 1")

    async def test(rig: Rig) -> None:
        player = rig.app.playback.player
        await rig.press("z")
        assert "Recorded, 17 of 64 tokens" in rig.screen_text()
        await rig.press("escape")
        player.go(begun + 1)
        await rig.until(lambda: player.settled)
        await rig.press("z")
        assert rig.status == with_keys(REFUSED)
        player.go(opened)
        await rig.until(lambda: player.settled)
        await rig.press("z")
        assert "Recorded, 20 of 32 tokens" in rig.screen_text()

    replayed(test, path, size=(80, 24))


@pytest.mark.parametrize("path", [[race(8, 16, 24, 24)]], indirect=True)
async def test_a_race_plays_on_its_own_screen(replay: Rig, path: Path) -> None:
    player = replay.app.playback.player
    player.go(next(n for n, each in enumerate(player.file.entries, 2) if isinstance(each.value, RaceOpened)))
    await replay.until(lambda: player.settled)
    await replay.press("z", "plus", "plus", "plus", "plus", "r")
    await replay.until(lambda: player.at_end)
    await replay.until(lambda: "Recorded, 24 of 24 tokens" in replay.screen_text())
    await replay.press("space")
    assert replay.app.top.said == "A race needs a live model: esc, then G"


@pytest.mark.slow
@pytest.mark.parametrize("path", [[[PROFILED, ROOFLINE], KV_COMPARED]], indirect=True)
async def test_a_step_taken_apart_is_shown_and_starts_nothing(replay: Rig, path: Path) -> None:
    await replay.do("profile")
    assert isinstance(replay.app.top, CostsView)
    assert "Recorded after 11 tokens. A profile needs a live model: esc, then G" in replay.screen_text()
    assert "fences make it 1.50 times as long" in replay.screen_text()
    await replay.press("right", "right")
    assert "● decode" in replay.screen_text()
    await replay.press("escape", "Q")
    assert "4" in replay.screen_text()
    await settle(replay, *["backspace"] * 5)
    assert "Not recorded up to here" in replay.screen_text()
    await replay.press("escape", "Q")
    assert replay.status == with_keys(REFUSED)
    assert replay.engine.sent == []


@pytest.mark.slow
def test_a_beam_search_is_stepped_through_on_its_own_screen(tmp_path):
    path = tmp_path / "a.trace"
    session = write(path)
    session.records += search(session.node)  # type: ignore[arg-type]
    save_as(path, [Entry(record, n / 10) for n, record in enumerate(session.records)], "test 1")

    async def test(rig: Rig) -> None:
        await rig.press("B")
        assert isinstance(rig.app.top, BeamsView)
        found = rig.timeline.of(BeamHistory)
        assert "Recorded, step 6 of at most 6, over" in rig.screen_text()
        await rig.press("n", "r")
        assert not rig.app.top.form.display
        assert found.search.failure is None  # nothing was asked for
        await settle(rig, "backspace", "backspace")
        assert len(rig.timeline.of(BeamHistory).search.steps) == 5
        await settle(rig, "space")
        assert "Recorded, step 6 of at most 6" in rig.screen_text()
        await settle(rig, *["backspace"] * 7)
        assert "No search was recorded up to here" in rig.screen_text()
        await rig.press("down", "enter", "tab", "home", "end")
        assert rig.app._exception is None

    replayed(test, path)


def test_an_explanation_that_was_recorded_later_is_shown_when_it_comes(tmp_path):
    path = tmp_path / "a.trace"
    session = write(path)
    last = next(record for record in reversed(session.records) if isinstance(record, Step))
    count = len(last.next.candidates)
    explained = Explained(last.node, (0.0,) * count, (), ((),) * count, last.next, True)
    session.records.append(explained)
    save_as(path, [Entry(record, n / 10) for n, record in enumerate(session.records)], "test 1")

    async def test(rig: Rig) -> None:
        player = rig.app.playback.player
        player.go(len(player.file.entries) - 1)
        await rig.until(lambda: player.settled)
        await rig.press("w")
        await rig.until(lambda: rig.timeline.last_explanation is not None)
        assert rig.timeline.last_explanation.failure is not None
        await rig.press("space")
        await rig.until(lambda: rig.timeline.last_explanation.explained == explained)

    replayed(test, path)


def line(rig: Rig) -> str:
    """The caption on the screen that is on top."""
    found = rig.app.screen.query(CaptionLine)
    return found.first()._shown if found else ""


@pytest.mark.parametrize(
    "path",
    [[[WATCH, *race(8, 16, 19, 19), OVER], [PANEL], [Marked(10, caption="G", tool="recordings")]]],
    indirect=True,
)
@pytest.mark.recorded(size=(80, 24))
async def test_a_caption_goes_to_its_panel_and_opens_its_tool_and_leaves_it(replay: Rig, path: Path) -> None:
    player, main = replay.app.playback.player, replay.app.main
    player.go(1)
    await settle(replay, *["space"] * 6)
    assert line(replay) == "Watch [it]␛"
    assert replay.timeline.selected.node == 8
    assert replay.app.top is main  # nothing of the race is there yet
    await settle(replay, "space")
    await replay.until(lambda: isinstance(replay.app.top, RaceView) and line(replay))
    assert line(replay) == "Watch [it]␛"
    assert "Watch [it]␛" in replay.screen_text()
    assert "Recorded, 17 of 19" in replay.screen_text()
    await settle(replay, "space", "space")
    assert "Recorded, 19 of 19" in replay.screen_text()
    await settle(replay, "space")
    assert line(replay) == "It is over"
    await settle(replay, "space")
    await replay.until(lambda: replay.app.top is main)  # the replay went on
    await replay.until(lambda: line(replay) == "The panel")
    assert main.arrangement.current == "sampler"
    assert replay.timeline.selected.node == 9
    await settle(replay, "backspace")
    await replay.until(lambda: isinstance(replay.app.top, RaceView) and line(replay) == "It is over")
    await settle(replay, "escape", "space", "space")
    await replay.until(lambda: line(replay) == "G")
    assert replay.app.top is main
    assert replay.engine.sent == []  # a file opens what was recorded, and does nothing else
    await settle(replay, "space")
    assert replay.timeline.following


@pytest.mark.parametrize("path", [[[*BEGINNING, *REST, *COMPARED]]], indirect=True)
async def test_a_recorded_batch_is_shown_as_far_as_the_replay_is(replay: Rig, path: Path) -> None:
    await replay.do("batch")
    assert isinstance(replay.app.top, BatchView)
    text = replay.screen_text()
    assert "Batch · recorded · step 3" in text
    assert "1 of 2 lanes equal" in text
    assert "Once [b]upon a time." in text
    await settle(replay, *["backspace"] * 4)  # the comparison, the end, step 3, step 2
    assert "Batch · recorded · step 2" in replay.screen_text()
    assert "lanes equal" not in replay.screen_text()
    await settle(replay, "space")
    assert "Batch · recorded · step 3" in replay.screen_text()
    for key in ("n", "a", "x", "c", "m", "left", "enter"):
        await replay.press("escape")
        await replay.do("batch")
        await replay.press(key)
        assert "needs a live model" in replay.app.top.said
    await settle(replay, *["backspace"] * 12)
    assert "one forward pass for all" in replay.answer_words()
    await replay.press("escape")
    await replay.do("batch")
    assert replay.status == with_keys(REFUSED)
    assert replay.engine.sent == replay.engine.asked == []


@pytest.mark.parametrize("path", [[[DRAWN, *draws(DRAWN.node)]]], indirect=True)
async def test_recorded_draws_are_shown_with_what_came(replay: Rig, path: Path) -> None:
    await replay.do("draws")
    assert isinstance(replay.app.top, DrawsView)
    assert "chi-square 1.50" in replay.screen_text()
    assert "2  a" in replay.screen_text()
    await replay.press("up")
    assert "needs a live model" in replay.app.top.said
    assert replay.engine.sent == []
