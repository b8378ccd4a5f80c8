"""A recording on the screen: read, shown up to a place, played; and followed while a program appends to it."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from engine.errors import EngineError, RecordingError
from engine.protocol import (
    DraftRound,
    Marked,
    Prefill,
    Prefilled,
    PromptOpened,
    PromptReadings,
    Resampled,
    Step,
)
from engine.recording import Entry, Journal, RecordingReader, load, save_as
from engine.settings import LoadSettings, Settings
from inspector.recordings import sessions
from inspector.session import player as module
from inspector.session.client import IdleBackend
from inspector.session.controller import Controller
from inspector.session.player import LONGEST_PAUSE, SPEEDS, Player
from inspector.session.replay import restore_of
from inspector.session.replay_backend import ReplayBackend
from tests.engine.recording.resumed import resumed
from tests.inspector.fakes import Session
from tests.inspector.views.drafts.made import draft_round


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Shown:
    """What a replay showed since it began."""

    def __init__(self, path: Path, settled: bool = True, **options: object) -> None:
        self.clock = Clock()
        self.values: list[object] = []
        self.replay = Player(path, self.values.append, self.values.clear, clock=self.clock, **options)  # type: ignore[arg-type]
        if settled:
            self.settle()

    def step(self) -> None:
        self.replay.step()
        self.settle()

    def back(self) -> None:
        self.replay.back()
        self.settle()

    def settle(self) -> None:
        for _ in range(10_000):
            if self.replay.settled:
                return
            self.replay.tick()
        raise AssertionError("it never settled")

    def wait(self, seconds: float) -> None:
        """Let time pass, a frame at a time."""
        for _ in range(round(seconds / 0.02)):
            self.clock.now += 0.02
            self.replay.tick()

    @property
    def steps(self) -> int:
        return sum(isinstance(value, Step) for value in self.values)


def written(path: Path, gaps: dict[int, float] | None = None, more: list[Entry] | None = None) -> list[Entry]:
    """A session of 10 steps, one a second unless `gaps` says otherwise (by the step's index)."""
    session, entries, at = Session(), [], 0.0
    for record in [*session.load(), *session.open(), *session.steps(10)]:
        if isinstance(record, Step):
            at += (gaps or {}).get(record.index, 1.0)
        entries.append(Entry(record, at))
    entries += more or []
    save_as(path, entries, "test 1")
    return entries


@pytest.fixture
def path(tmp_path: Path) -> Path:
    written(tmp_path / "a.trace")
    return tmp_path / "a.trace"


def test_it_stands_at_its_end_once_it_is_read(path):
    shown = Shown(path, settled=False)
    assert shown.replay.file.reading
    shown.settle()
    assert shown.steps == 10
    assert shown.replay.at_end
    assert shown.replay.stop == (13, 13)  # two chunks, the prompt, ten steps


def test_it_plays_at_the_recorded_pace(path):
    shown = Shown(path, from_start=True)
    assert shown.values == []
    shown.replay.play()
    shown.wait(0.5)
    assert isinstance(next(v for v in shown.values if isinstance(v, Prefilled)), Prefilled)
    assert shown.steps == 0
    shown.wait(3.0)
    assert shown.steps == 3
    shown.wait(8.0)
    assert shown.steps == 10
    assert not shown.replay.playing
    assert shown.replay.at_end


@pytest.mark.parametrize(("by", "seconds", "steps"), [(-1, 4.1, 2), (1, 2.1, 4), (2, 1.1, 5), (99, 0.04, 10)])
def test_it_plays_faster_and_slower(path, by, seconds, steps):
    shown = Shown(path, from_start=True)
    shown.replay.change_speed(by)
    shown.replay.play()
    shown.wait(seconds)
    assert shown.steps == steps


def test_speeds_end_at_both_ends(path):
    replay = Shown(path).replay
    replay.change_speed(99)
    assert replay.speed == math.inf
    replay.change_speed(-99)
    assert replay.speed == SPEEDS[0]


def test_a_long_absence_is_cut_short(tmp_path):
    written(tmp_path / "a.trace", {4: 3600.0})
    shown = Shown(tmp_path / "a.trace", from_start=True)
    shown.replay.play()
    shown.wait(4.1 + LONGEST_PAUSE)
    assert shown.steps == 5


def test_pausing_holds_and_playing_goes_on_from_there(path):
    shown = Shown(path, from_start=True)
    shown.replay.play()
    shown.wait(2.5)
    shown.replay.pause()
    shown.wait(5.0)
    assert shown.steps == 2
    shown.replay.play()
    shown.wait(1.1)
    assert shown.steps == 3


def test_stepping_shows_one_change_of_the_picture_at_a_time(path):
    shown = Shown(path, from_start=True)
    seen = []
    for _ in range(6):
        shown.step()
        seen.append(shown.steps)
    assert seen == [0, 0, 0, 1, 2, 3]  # the chunks and the whole prompt come first


def test_a_step_shows_the_round_that_it_ends_with_it(tmp_path):
    file = tmp_path / "rounds.trace"
    entries = written(file)
    steps = [place for place, entry in enumerate(entries) if isinstance(entry.value, Step)]
    node = entries[steps[4]].value.node
    entries.insert(steps[4] + 1, Entry(draft_round(node - 1, node), entries[steps[4]].at))
    save_as(file, entries, "test 1")
    shown = Shown(file, from_start=True)
    while shown.steps < 5:
        shown.step()
    assert isinstance(shown.values[-1], DraftRound)
    shown.back()
    assert shown.steps == 4
    assert not any(isinstance(value, DraftRound) for value in shown.values)


def test_prompt_logprobs_are_shown_with_the_prompt(tmp_path):
    session = Session()
    records = [*session.load(), *session.open(), *session.steps(2)]
    save_as(tmp_path / "a.trace", [Entry(record, 0.0) for record in records], "test 1")
    shown = Shown(tmp_path / "a.trace", from_start=True)
    while not any(isinstance(value, Prefilled) for value in shown.values):
        shown.step()
    assert [value.left for value in shown.values if isinstance(value, PromptReadings)][-1:] == [0]
    assert shown.steps == 0
    shown.step()
    assert shown.steps == 1
    shown.back()
    assert (shown.steps, isinstance(shown.values[-2], PromptReadings)) == (0, True)


def test_going_back_shows_exactly_what_was_there(path):
    shown = Shown(path)
    everything = list(shown.values)
    for back in range(1, 6):
        shown.back()
        assert shown.steps == 10 - back
        assert shown.values == everything[: len(shown.values)]
    shown.step()
    assert shown.steps == 6


def test_back_beyond_the_start_stays_there(path):
    shown = Shown(path)
    for _ in range(20):
        shown.back()
    assert shown.steps == 0
    shown.step()
    assert len(shown.values) > 0


def test_playing_at_the_end_begins_at_the_prompt(path):
    shown = Shown(path)
    shown.replay.play()
    shown.wait(1.5)
    assert shown.steps == 1
    assert sum(isinstance(value, PromptOpened) for value in shown.values) == 1


def test_a_caption_that_was_written_afterwards_appears_at_its_step_and_is_given_time(tmp_path):
    entries = written(tmp_path / "a.trace")
    node = next(e.value.node for e in entries if isinstance(e.value, Step) and e.value.index == 2)
    words = "one two three four five six seven eight nine"  # three seconds to read
    written(tmp_path / "a.trace", more=[Entry(Marked(node, caption=words), 60.0)])
    shown = Shown(tmp_path / "a.trace", from_start=True)
    shown.replay.play()
    shown.wait(5.5)
    assert shown.steps == 3
    assert shown.replay.caption(node) == words
    assert shown.replay.file.captions.at
    shown.wait(0.6)
    assert shown.steps == 4


def test_a_caption_written_at_its_step_waits_no_longer_than_it_was_waited(tmp_path):
    entries = written(tmp_path / "a.trace")
    node = next(e.value.node for e in entries if isinstance(e.value, Step) and e.value.index == 2)
    place = next(i for i, e in enumerate(entries) if isinstance(e.value, Step) and e.value.index == 2) + 1
    entries.insert(place, Entry(Marked(node, caption="word " * 60), entries[place - 1].at))
    save_as(tmp_path / "a.trace", entries, "test 1")
    shown = Shown(tmp_path / "a.trace", from_start=True)
    shown.replay.play()
    shown.wait(4.1)
    assert shown.steps == 4


def test_captions_belong_to_their_own_prompt(tmp_path):
    entries = written(tmp_path / "a.trace", more=[Entry(Marked(7, caption="first"), 12.0)])
    save_as(tmp_path / "a.trace", [*entries, *entries[:-1]], "test 1")
    shown = Shown(tmp_path / "a.trace", from_start=True)
    shown.replay.go(len(entries))
    shown.settle()
    assert shown.replay.caption(7) == "first"
    shown.replay.end()
    shown.settle()
    assert shown.replay.caption(7) == ""


def test_a_torn_recording_is_shown_as_far_as_it_goes(path):
    entries = load(path).entries
    path.unlink()
    journal = Journal.create(path, "test 1")
    for entry in entries:
        journal.write(entry)
    journal.close()
    path.write_bytes(path.read_bytes()[:-40])
    shown = Shown(path)
    assert shown.steps == 9
    assert shown.replay.file.reader.torn > 0
    assert shown.replay.file.failure is None


def test_a_damaged_one_is_shown_up_to_the_damage_and_says_where_it_is(path):
    data = bytearray(path.read_bytes())
    place = data.rindex(b"\xa4Step", 0, data.rindex(b"\xa4Step"))
    data[place : place + 5] = b"\xa4Stop"
    path.write_bytes(data)
    shown = Shown(path)
    assert shown.steps == 8
    assert "was damaged: its checksum differs" in str(shown.replay.file.failure)


def test_what_is_no_recording_is_refused_at_once(tmp_path):
    (tmp_path / "x").write_text("hello\n")
    with pytest.raises(RecordingError, match="not a recording"):
        Shown(tmp_path / "x")


def test_draws_are_counted_for_the_tree_on_show(tmp_path):
    session = Session()
    records = [*session.load(), *session.open(), *session.steps(2)]
    last = records[-1]
    assert isinstance(last, Step)
    records += [Resampled(replace(last.next, reroll=2)), Resampled(last.next)]
    save_as(tmp_path / "a.trace", [Entry(record) for record in records], "test 1")
    shown = Shown(tmp_path / "a.trace")
    controller = Controller(IdleBackend(), LoadSettings(), Settings(), Prefill("", False))
    backend = ReplayBackend(controller, lambda received: None, lambda answer: None)
    shown.replay = Player(tmp_path / "a.trace", backend.show, backend.begin)
    shown.settle()

    def drawn() -> dict[int, int]:
        return dict(restore_of(controller.timeline, controller.history.draws).rerolls)

    assert drawn() == {}, "the draw was taken back"
    shown.back()
    assert drawn() == {last.node: 2}
    shown.back()
    assert drawn() == {}


# ---- a recording that grows -------------------------------------------------------------------


class Growing:
    """A session that is written step by step, and the player that follows it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        session = Session()
        self.journal = Journal.create(path, "test 1")
        for record in [*session.load(), *session.open()]:
            self.journal.write(Entry(record))
        self._steps = iter(session.steps(200))
        self.values: list[object] = []
        self.player = Player(path, self.values.append, self.values.clear, follow=True)

    def step(self, count: int = 1) -> None:
        for _ in range(count):
            self.journal.write(Entry(next(self._steps)))
        self.journal.flush(60)

    def settle(self) -> None:
        for _ in range(1000):
            self.player.tick()
            if self.player.settled:
                return
        raise AssertionError("it never settled")

    @property
    def steps(self) -> int:
        return sum(isinstance(value, Step) for value in self.values)


@pytest.fixture
def growing(tmp_path: Path) -> Growing:
    made = Growing(tmp_path / "a.trace")
    made.journal.flush(60)
    made.settle()
    return made


def test_what_comes_is_shown_and_nothing_is_written(growing: Growing) -> None:
    for count in range(1, 6):
        growing.step()
        growing.settle()
        assert growing.steps == count
    before = growing.path.read_bytes()
    growing.player.back()
    growing.player.play()
    growing.player.end()
    growing.settle()
    assert growing.path.read_bytes() == before


def test_whoever_looks_back_stays_there_until_the_end_is_asked_for(growing: Growing) -> None:
    growing.step(5)
    growing.settle()
    growing.player.back()
    growing.settle()
    assert (growing.steps, growing.player.behind) == (4, 1)
    growing.step(3)
    growing.settle()
    assert (growing.steps, growing.player.behind) == (4, 4)
    growing.player.step()
    growing.settle()
    assert (growing.steps, growing.player.behind) == (5, 3)
    growing.player.end()
    growing.settle()
    assert (growing.steps, growing.player.behind) == (8, 0)
    growing.step()
    growing.settle()
    assert growing.steps == 9


def test_a_step_at_the_end_goes_on_following(growing: Growing) -> None:
    growing.step()
    growing.settle()
    growing.player.step()
    growing.step()
    growing.settle()
    assert growing.steps == 2


def test_whoever_comes_late_sees_all_of_it(growing: Growing) -> None:
    growing.step(50)
    values: list[object] = []
    late = Player(growing.path, values.append, values.clear, follow=True)
    while not late.settled:
        late.tick()
    assert sum(isinstance(value, Step) for value in values) == 50


def test_a_line_that_is_half_there_is_waited_for(growing: Growing, tmp_path: Path) -> None:
    growing.step(3)
    whole = growing.path.read_bytes()
    for cut in (1, 2, 20, len(whole.splitlines(keepends=True)[-1]) - 1):
        path = tmp_path / f"cut{cut}.trace"
        path.write_bytes(whole[:-cut])
        reader = RecordingReader(path, torn_ok=True, follow=True)
        there = list(reader)
        assert list(reader) == []
        with path.open("ab") as file:
            file.write(whole[-cut:])
        assert len(list(reader)) == 1
        assert len(there) + 1 == reader.entries == len(list(RecordingReader(growing.path)))
        reader.close()


@pytest.mark.parametrize("how", ["cut", "removed", "replaced"])
def test_a_file_that_is_no_more_what_it_was_says_so_and_what_was_read_stands(
    growing: Growing, how: str
) -> None:
    growing.step(3)
    growing.settle()
    match how:
        case "cut":
            os.truncate(growing.path, 200)
        case "removed":
            growing.path.unlink()
        case "replaced":
            other = growing.path.with_name("b.trace")
            other.write_bytes(growing.path.read_bytes())
            other.replace(growing.path)
    growing.settle()
    assert growing.player.file.failure is not None
    assert how in str(growing.player.file.failure)
    assert not growing.player.file.following
    assert growing.steps == 3
    growing.player.back()
    growing.settle()
    assert growing.steps == 2


def test_it_is_seen_that_the_program_has_left_and_that_it_came_back(growing: Growing, monkeypatch) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.0)
    growing.step()
    growing.settle()
    assert not growing.player.file.left
    growing.journal.close()
    growing.settle()
    assert growing.player.file.left
    _, _, growing.journal = resumed(growing.path, "test 2")
    growing.step(2)
    growing.settle()
    assert not growing.player.file.left
    assert growing.steps == 3


def test_a_whole_recording_has_nothing_to_come(growing: Growing, tmp_path: Path) -> None:
    growing.step(2)
    growing.settle()
    for name in ("whole.trace", "whole.trace.zst"):
        save_as(tmp_path / name, growing.player.file.entries, "test 1")
        values: list[object] = []
        player = Player(tmp_path / name, values.append, values.clear, follow=True)
        while not player.settled:
            player.tick()
        assert not player.file.following
        assert len(values) == growing.player.position


def test_the_session_that_runs_is_the_one_that_is_followed(tmp_path: Path) -> None:
    growing = Growing(tmp_path / "20260101-000000-pocket.trace")
    growing.step()
    (tmp_path / "20260102-000000-pocket.trace").write_bytes(growing.path.read_bytes())  # later, and of nobody
    assert sessions.find("", tmp_path, growing=True) == growing.path
    assert sessions.find("20260102", tmp_path, growing=True).name.startswith("20260102")
    growing.journal.close()
    with pytest.raises(EngineError, match="is running"):
        sessions.find("", tmp_path, growing=True)
