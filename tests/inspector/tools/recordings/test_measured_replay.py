"""What was measured in a recording is shown on its own screens, up to the place where the replay stands."""

from __future__ import annotations

from pathlib import Path

from engine.protocol import Explained, KVCompared, Marked, RaceEnded, RaceOpened, Record, Step
from engine.settings import LoadSettings
from engine.trace import Entry, save_as
from inspector.keys import with_keys
from inspector.main.caption import CaptionLine
from inspector.session.replay_backend import REFUSED
from inspector.state.beams import BeamHistory
from inspector.tools.beams.screen import BeamScreen
from inspector.tools.costs.screen import ProfileScreen
from inspector.tools.race.screen import RaceScreen
from inspector.tools.sweeps.screen import SweepScreen
from tests.inspector.fake_beams import search
from tests.inspector.fakes import Session
from tests.inspector.rig import Rig
from tests.inspector.tools.costs.test_screen import OWN, PROFILED, QUARTER, ROOFLINE
from tests.inspector.tools.race.test_screen import HOW, steps
from tests.inspector.tools.recordings.test_replay_screen import replayed
from tests.inspector.tools.sweeps.test_screen import SWEPT

Told = list[Record]


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


async def settle(rig: Rig, *keys: str) -> None:
    """Press keys, each once the recording shows what the one before asked for."""
    for key in keys:
        await rig.press(key)
        await rig.until(lambda: rig.app.playback.player.settled)
        await rig.pilot.pause()


def test_a_recorded_race_is_shown_as_far_as_the_replay_is_and_grows_with_it(tmp_path):
    path = tmp_path / "a.jsonl"
    write(path, [*race(8, 16, 24, 18), *race(8, 18, 24, 24)])  # it was paused once

    async def test(rig: Rig) -> None:
        await rig.press("z")
        assert isinstance(rig.app.screen, RaceScreen)
        assert "Race · recorded · pocket · 16 to 24 tokens" in rig.screen_text()
        assert "Recorded, 24 of 24 tokens. A race needs a live model: esc, then G" in rig.screen_text()
        assert rig.app.screen.control.steps[-1].cached_total_ms == 8 * 5.0  # over the pause
        await settle(rig, "backspace", "backspace")  # the step after it, its last step
        assert "Recorded, 23 of 24 tokens" in rig.screen_text()
        await settle(rig, "space")
        assert "Recorded, 24 of 24 tokens" in rig.screen_text()
        for key in ("enter", "n", "right"):
            await rig.press("escape", "z", key)
            assert "needs a live model" in rig.app.screen.said
        await settle(rig, *["backspace"] * 9)
        assert "No race was recorded up to here" in rig.screen_text()
        await rig.press("escape", "z")
        assert rig.status == with_keys(REFUSED)
        assert rig.engine.sent == []

    replayed(test, path)


def test_half_a_race_is_shown_and_that_of_another_prompt_is_not(tmp_path):
    path = tmp_path / "a.jsonl"
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


def test_a_race_plays_on_its_own_screen(tmp_path):
    path = tmp_path / "a.jsonl"
    write(path, race(8, 16, 24, 24))

    async def test(rig: Rig) -> None:
        player = rig.app.playback.player
        player.go(
            next(n for n, each in enumerate(player.file.entries, 2) if isinstance(each.value, RaceOpened))
        )
        await rig.until(lambda: player.settled)
        await rig.press("z", "plus", "plus", "plus", "plus", "r")
        await rig.until(lambda: player.at_end)
        await rig.until(lambda: "Recorded, 24 of 24 tokens" in rig.screen_text())
        await rig.press("space")
        assert rig.app.screen.said == "A race needs a live model: esc, then G"

    replayed(test, path)


def test_a_step_taken_apart_and_sweeps_are_shown_and_start_nothing(tmp_path):
    path = tmp_path / "a.jsonl"
    compared = [KVCompared(8, 11, (OWN,), "x", False), KVCompared(8, 11, (OWN, QUARTER), "x", True)]
    write(path, [PROFILED, ROOFLINE], compared, [SWEPT])

    async def test(rig: Rig) -> None:
        await rig.press("P")
        assert isinstance(rig.app.screen, ProfileScreen)
        assert "Recorded after 11 tokens. A profile needs a live model: esc, then G" in rig.screen_text()
        assert "fences make it 1.50 times as long" in rig.screen_text()
        await rig.press("3")
        assert "● decode" in rig.screen_text()
        await rig.press("escape", "Q")
        assert "4" in rig.screen_text()
        await settle(rig, *["backspace"] * 5)
        assert "Not recorded up to here" in rig.screen_text()
        await rig.press("escape", "Q")
        assert rig.status == with_keys(REFUSED)
        await rig.press("y")
        assert rig.status == with_keys(REFUSED)
        await settle(rig, *["space"] * 6)
        await rig.press("y")
        assert isinstance(rig.app.screen, SweepScreen)
        assert "Sweeps · recorded · pocket" in rig.screen_text()
        assert "TTFT" in rig.screen_text()
        await rig.press("1", "enter")
        assert rig.app.screen.said == "A sweep needs a live model: esc, then G"
        assert rig.engine.sent == []

    replayed(test, path)


def test_a_beam_search_is_stepped_through_on_its_own_screen(tmp_path):
    path = tmp_path / "a.jsonl"
    session = write(path)
    session.records += search(session.node)  # type: ignore[arg-type]
    save_as(path, [Entry(record, n / 10) for n, record in enumerate(session.records)], "test 1")

    async def test(rig: Rig) -> None:
        await rig.press("B")
        assert isinstance(rig.app.screen, BeamScreen)
        found = rig.timeline.of(BeamHistory)
        assert "Recorded, step 6 of at most 6, over" in rig.screen_text()
        await rig.press("n", "r")
        assert not rig.app.screen.form.display
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
    path = tmp_path / "a.jsonl"
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


def test_a_caption_goes_to_its_panel_and_opens_its_tool_and_leaves_it(tmp_path):
    path = tmp_path / "a.jsonl"
    watch, over = (
        Marked(8, caption="Watch [it]\x1b", tool="race"),
        Marked(8, caption="It is over", tool="race"),
    )
    panel = Marked(9, caption="The panel", tool="sampler")
    write(path, [watch, *race(8, 16, 19, 19), over], [panel], [Marked(10, caption="G", tool="recordings")])

    async def test(rig: Rig) -> None:
        player, main = rig.app.playback.player, rig.app.main
        player.go(1)
        await settle(rig, *["space"] * 6)
        assert line(rig) == "Watch [it]␛"
        assert rig.timeline.selected.node == 8
        assert rig.app.screen is main  # nothing of the race is there yet
        await settle(rig, "space")
        await rig.until(lambda: isinstance(rig.app.screen, RaceScreen) and line(rig))
        assert line(rig) == "Watch [it]␛"
        assert "Watch [it]␛" in rig.screen_text()
        assert "Recorded, 17 of 19" in rig.screen_text()
        await settle(rig, "space", "space")
        assert "Recorded, 19 of 19" in rig.screen_text()
        await settle(rig, "space")
        assert line(rig) == "It is over"
        await settle(rig, "space")
        await rig.until(lambda: rig.app.screen is main)  # the replay went on
        await rig.until(lambda: line(rig) == "The panel")
        assert main.arrangement.current == "sampler"
        assert rig.timeline.selected.node == 9
        await settle(rig, "backspace")
        await rig.until(lambda: isinstance(rig.app.screen, RaceScreen) and line(rig) == "It is over")
        await settle(rig, "escape", "space", "space")
        await rig.until(lambda: line(rig) == "G")
        assert rig.app.screen is main
        assert rig.engine.sent == []  # a file opens what was recorded, and does nothing else
        await settle(rig, "space")
        assert rig.timeline.following

    replayed(test, path, size=(80, 24))
