"""A recording that grows: shown as it does, looked back in, cut, replaced, and left by its program."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.errors import EngineError
from engine.protocol import Step
from engine.trace import Journal, TraceReader, save_as
from inspector.recordings import sessions
from inspector.session.replay import player as module
from inspector.session.replay.player import Player
from tests.inspector.fakes import Session


class Growing:
    """A session that is written step by step, and a watcher's player of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        session = Session()
        self.journal = Journal.create(path, "test 1")
        for record in [*session.load(), *session.open()]:
            self.journal.write(record)
        self._steps = iter(session.steps(200))
        self.values: list[object] = []
        self.player = Player(path, self.values.append, self.values.clear, follow=True)

    def step(self, count: int = 1) -> None:
        for _ in range(count):
            self.journal.write(next(self._steps))
        self.journal.flush()

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
    made = Growing(tmp_path / "a.jsonl")
    made.journal.flush()
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
        path = tmp_path / f"cut{cut}.jsonl"
        path.write_bytes(whole[:-cut])
        reader = TraceReader(path, torn_ok=True, follow=True)
        there = list(reader)
        assert list(reader) == []
        with path.open("ab") as file:
            file.write(whole[-cut:])
        assert len(list(reader)) == 1
        assert len(there) + 1 == reader.entries == len(list(TraceReader(growing.path)))
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
            other = growing.path.with_name("b.jsonl")
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
    _, _, growing.journal = Journal.resume(growing.path, "test 2")
    growing.step(2)
    growing.settle()
    assert not growing.player.file.left
    assert growing.steps == 3


def test_a_whole_recording_has_nothing_to_come(growing: Growing, tmp_path: Path) -> None:
    growing.step(2)
    growing.settle()
    for name in ("whole.jsonl", "whole.jsonl.gz"):
        save_as(tmp_path / name, growing.player.file.entries, "test 1")
        values: list[object] = []
        player = Player(tmp_path / name, values.append, values.clear, follow=True)
        while not player.settled:
            player.tick()
        assert not player.file.following
        assert len(values) == growing.player.position


def test_the_session_that_runs_is_the_one_that_is_followed(tmp_path: Path) -> None:
    growing = Growing(tmp_path / "20260101-000000-pocket.jsonl")
    growing.step()
    (tmp_path / "20260102-000000-pocket.jsonl").write_bytes(growing.path.read_bytes())  # later, and of nobody
    assert sessions.find_growing("", tmp_path) == growing.path
    assert sessions.find_growing("20260102", tmp_path).name.startswith("20260102")
    growing.journal.close()
    with pytest.raises(EngineError, match="is running"):
        sessions.find_growing("", tmp_path)
