"""The running session is kept: all of it, in order, off the screen's time, whatever becomes of its file."""

from __future__ import annotations

import os
import time
from datetime import datetime
from pathlib import Path

import pytest

from engine import protocol
from engine.errors import RecordingError
from engine.protocol import (
    AttentionRead,
    CaptureFacts,
    Ended,
    Marked,
    ModelFacts,
    Prefill,
    PromptOpened,
    Step,
)
from engine.recording import Journal, RecordingReader, load
from engine.recording.journal import RecordingChanged
from engine.settings import LoadSettings, Settings
from inspector.app import InspectorApp
from inspector.recordings import sessions
from inspector.recordings.recorder import Recorder
from tests.inspector.fakes import Session
from tests.inspector.rig import FakeEngine, Rig, run

PROGRAM = "test 1"


def recording(directory: Path | None, told: list[str] | None = None) -> Recorder:
    return Recorder(
        directory,
        lambda: PROGRAM,
        lambda: LoadSettings("some/model"),
        lambda: Settings(temp=0.8),
        lambda text, *_: ([] if told is None else told).append(text),
    )


def lived(kept: Recorder, steps: int = 5) -> Session:
    session = Session()
    for record in [*session.load(), Ended("Configure"), *session.open(), *session.steps(steps)]:
        kept.receive(record)
    return session


def values(path: Path) -> list[object]:
    return [entry.value for entry in load(path, torn_ok=True).entries]


def test_a_session_is_written_as_it_happens(tmp_path):
    kept = recording(tmp_path)
    lived(kept)
    assert kept.path is not None
    kept.journal.flush()
    assert values(kept.path) == [entry.value for entry in kept.entries]
    kinds = [type(value) for value in values(kept.path)]
    assert kinds[:5] == [LoadSettings, ModelFacts, Ended, Settings, Ended]
    assert kinds.count(Step) == 5
    assert not any(isinstance(value, protocol.Loading) for value in values(kept.path))


def test_its_file_is_named_by_date_and_model(tmp_path):
    path = sessions.new_path(tmp_path, "hub/Some Model:v1", datetime(2026, 11, 21, 10, 5, 6))
    assert path.name == "20261121-100506-Some-Model-v1.trace"
    path.touch()
    again = sessions.new_path(tmp_path, "hub/Some Model:v1", datetime(2026, 11, 21, 10, 5, 6))
    assert again.name == "20261121-100506-Some-Model-v1-2.trace"


def test_settings_are_kept_once_for_each_change(tmp_path):
    now = [Settings(temp=0.8)]
    kept = Recorder(None, lambda: PROGRAM, LoadSettings, lambda: now[0], print)
    for settings in (now[0], now[0], Settings(temp=1.0)):
        now[0] = settings
        kept.receive(Ended("Configure"))
    assert [e.value for e in kept.entries if isinstance(e.value, Settings)] == [
        Settings(temp=0.8),
        Settings(temp=1.0),
    ]


def test_without_a_directory_it_is_kept_in_memory_alone(tmp_path):
    kept = recording(None)
    lived(kept)
    kept.close()
    assert kept.path is None
    assert sum(isinstance(entry.value, Step) for entry in kept.entries) == 5
    assert list(tmp_path.iterdir()) == []


def test_a_prompt_alone_leaves_no_file(tmp_path):
    kept = recording(tmp_path)
    lived(kept, steps=0)
    assert kept.path.exists()
    kept.close()
    assert list(tmp_path.iterdir()) == []


def test_a_prompt_whose_inside_was_looked_at_leaves_a_file(tmp_path):
    kept = recording(tmp_path)
    lived(kept, steps=0)
    kept.receive(AttentionRead(1, 1, (), 1, (), CaptureFacts((), 1.0, 0.0, "llama")))
    kept.close()
    assert kept.saved is not None
    assert isinstance(values(kept.saved)[-1], AttentionRead)


def test_a_directory_that_cant_be_made_is_told_once_and_the_session_goes_on(tmp_path):
    (tmp_path / "file").touch()
    told: list[str] = []
    kept = recording(tmp_path / "file" / "sessions", told)
    lived(kept)
    assert len(told) == 1
    assert "can't be written" in told[0]
    assert "ctrl+s" in told[0]
    assert sum(isinstance(entry.value, Step) for entry in kept.entries) == 5


def test_a_file_that_goes_away_is_told_once(tmp_path):
    told: list[str] = []
    kept = recording(tmp_path, told)
    session = lived(kept)
    kept.path.unlink()
    end = time.monotonic() + 60
    while not told and time.monotonic() < end:
        kept.receive(session.steps(1)[0])
        time.sleep(0.05)
    kept.receive(session.steps(1)[0])
    assert len(told) == 1
    assert "was removed" in told[0]
    assert "The session continues, and you can save it elsewhere" in told[0]
    assert not list(tmp_path.iterdir()), "nobody asked for another file"


def test_a_session_whose_file_another_program_emptied_is_saved_to_another(tmp_path):
    told: list[str] = []
    kept = recording(tmp_path, told)
    session = lived(kept)
    kept.journal.flush()
    first = kept.path
    first.write_bytes(b"")
    end = time.monotonic() + 60
    while not told and time.monotonic() < end:
        kept.receive(session.steps(1)[0])
        time.sleep(0.05)
    kept.receive(session.steps(1)[0])
    assert told == [f"Another program changed {first}. The session is saved to {kept.path} instead."]
    assert kept.settled() == kept.path != first
    assert values(kept.path) == [entry.value for entry in kept.entries]
    kept.close()
    assert (kept.saved, kept.notice, first.read_bytes()) == (tmp_path / kept.saved.name, "", b"")


def test_a_session_goes_on_unsaved_if_its_second_file_cannot_be_written_either(tmp_path, monkeypatch):
    def full(journal: Journal, entry: object) -> None:
        raise RecordingError("The disk is full.", "Free some space.")

    told: list[str] = []
    kept = recording(tmp_path, told)
    session = lived(kept)
    monkeypatch.setattr(Journal, "write", full)
    with kept._reporting():
        raise RecordingChanged(f"Another program changed {kept.path}.", "")
    kept.receive(session.steps(1)[0])
    (said,) = told
    assert said.startswith(
        "The disk is full. Free some space. The session continues, and you can save it elsewhere"
    )


def test_a_session_whose_file_was_emptied_last_is_saved_to_another(tmp_path):
    kept = recording(tmp_path)
    lived(kept)
    kept.journal.flush()
    first = kept.path
    first.write_bytes(b"")
    kept.close()
    assert kept.saved not in (None, first)
    assert kept.notice == f"Another program changed {first}."
    assert values(kept.saved) == [entry.value for entry in kept.entries]


def test_a_file_that_another_program_put_in_place_of_a_prompt_is_not_removed(tmp_path):
    kept = recording(tmp_path)
    lived(kept, steps=0)
    kept.journal.flush()
    kept.path.write_bytes(b"mine")
    first = kept.path
    kept.close()
    assert (kept.saved, first.read_bytes()) == (None, b"mine")


def test_a_full_disk_is_told_once(tmp_path, monkeypatch):
    told: list[str] = []
    kept = recording(tmp_path, told)
    session = lived(kept)
    kept.journal.flush()

    def full(*rest: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("engine.recording.journal.os.write", full)
    end = time.monotonic() + 60
    while not told and time.monotonic() < end:
        kept.receive(session.steps(1)[0])
        time.sleep(0.01)
    assert len(told) == 1
    assert "No space left" in told[0]
    assert "The session continues, and you can save it elsewhere" in told[0]


def test_going_on_appends_to_the_same_file(tmp_path):
    kept = recording(tmp_path)
    lived(kept)
    path = kept.path
    kept.close()
    again, reader = recording(tmp_path), RecordingReader(path, torn_ok=True)
    again.go_on(list(reader), reader)
    assert again.path == path
    again.receive(Marked(5, name="later"))
    again.close()
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    assert values(path)[-1] == Marked(5, name="later")
    times = [entry.at for entry in load(path, torn_ok=True).entries]
    assert times == sorted(times)


def test_going_on_from_a_recording_begins_a_file_of_its_own(tmp_path):
    first = recording(None)
    lived(first)
    kept = recording(tmp_path)
    kept.go_on(first.entries, None)
    kept.receive(Marked(5, name="later"))
    path = kept.path
    kept.close()
    assert values(path) == [*(entry.value for entry in first.entries), Marked(5, name="later")]


# ---- in the application -----------------------------------------------------------------------


def test_the_screen_saves_engine_and_marks_and_settings(state):
    async def test(rig: Rig) -> None:
        await rig.ready(3)
        await rig.do("bookmark")
        assert rig.app.recorder.path is not None

    app = run(test, save=state)
    (path,) = state.iterdir()
    assert app.recorder.saved == path
    found = values(path)
    assert isinstance(found[-1], Marked)
    assert found[-1].bookmarked
    assert Settings(temp=0.8) in found
    assert [e.value for e in app.recorder.entries] == found


def test_a_session_that_isnt_saved_leaves_nothing(state):
    async def test(rig: Rig) -> None:
        await rig.ready(3)

    assert run(test).recorder.saved is None
    assert not state.exists()


def test_a_prompt_without_a_step_is_not_said_to_be_saved(state):
    async def test(rig: Rig) -> None:
        await rig.ready(0)
        assert rig.app.recorder.path is not None

    assert run(test, save=state).recorder.saved is None
    assert list(state.iterdir()) == []


def test_keeping_costs_a_drain_next_to_nothing(tmp_path):
    kept = recording(tmp_path)
    session = lived(kept)
    some = session.steps(300)
    begun = time.process_time()
    for record in some:
        kept.receive(record)
    kept.journal.flush()
    whole = (time.process_time() - begun) / len(some)
    assert whole < 2e-3  # the thread's encoding included; what the screen waits for is measured in benchmarks
    kept.close()


# ---- which there are, and which go ------------------------------------------------------------


def saved(directory: Path, name: str, age: float, mark: bool = False, steps: int = 2) -> Path:
    kept = recording(directory)
    lived(kept, steps)
    if mark:
        kept.receive(Marked(5, bookmarked=True))
    path = kept.path
    kept.close()
    path = path.rename(directory / name)
    os.utime(path, (time.time() - age,) * 2)
    return path


def test_sessions_are_listed_newest_first(tmp_path):
    saved(tmp_path, "20260101-000000-old.trace", 1000, steps=4)
    saved(tmp_path, "20260102-000000-new.trace", 10)
    (tmp_path / "20250101-000000-broken.trace").write_text("nothing\n")
    os.utime(tmp_path / "20250101-000000-broken.trace", (1, 1))
    found = sessions.saved_sessions(tmp_path)
    assert [each.name.split("-")[-1] for each in found] == ["new", "old", "broken"]
    assert [each.tokens for each in found] == [2, 4, 0]
    assert found[0].peek.prompt == "Once upon a time,"
    assert "not a recording" in found[2].problem


def test_the_last_session_is_the_one_last_written_to(tmp_path):
    path = saved(tmp_path, "20260101-000000-a.trace", 5)
    saved(tmp_path, "20260102-000000-b.trace", 50)
    assert sessions.find("", tmp_path) == path
    assert sessions.find("20260102-000000-b", tmp_path).name == "20260102-000000-b.trace"
    with pytest.raises(
        sessions.EngineError, match=r"There is no file and no session 'c'\. See `inspector sessions`"
    ):
        sessions.find("c", tmp_path)
    with pytest.raises(sessions.EngineError, match="No session is saved"):
        sessions.find("", tmp_path / "none")


def test_a_name_may_be_begun_and_one_that_is_none_is_answered_with_those_near_it(tmp_path):
    for number, model in enumerate(["qwen", "llama", "llama-8b", "llama-70b", "llama-1b"]):
        (tmp_path / f"2026010{number}-000000-{model}.trace").write_text("x")
        os.utime(tmp_path / f"2026010{number}-000000-{model}.trace", (number, number))
    (tmp_path / "my lecture.trace").write_text("x")
    assert sessions.find("20260100", tmp_path).name == "20260100-000000-qwen.trace"
    assert sessions.find("my", tmp_path).name == "my lecture.trace"
    assert sessions.find("20260101-000000-llama", tmp_path).name == "20260101-000000-llama.trace"
    for name, said in {
        "2026": "5 sessions begin with '2026'. Say which: 20260104-000000-llama-1b, 20260103-000000-llama-70b, "
        "20260102-000000-llama-8b and 2 more.",
        "qwen": "There is no file and no session 'qwen'. Did you mean 20260100-000000-qwen? See `inspector sessions`",
        "mylecture": "There is no file and no session 'mylecture'. Did you mean my lecture? See",
        str(tmp_path): f"{tmp_path} is a directory.",
    }.items():
        with pytest.raises(sessions.EngineError) as told:
            sessions.find(name, tmp_path)
        assert str(told.value).startswith(said)


def test_a_session_that_runs_is_not_the_last(tmp_path):
    kept = recording(tmp_path)
    lived(kept)
    with pytest.raises(sessions.EngineError, match="in use"):
        sessions.find("", tmp_path)
    kept.close()
    assert sessions.find("", tmp_path).exists()


def test_the_oldest_go_first_but_never_marked_renamed_or_running_ones(tmp_path):
    marked = saved(tmp_path, "20260101-000000-marked.trace", 900, mark=True)
    renamed = saved(tmp_path, "my lecture.trace", 800)
    old = saved(tmp_path, "20260102-000000-old.trace", 700)
    new = [saved(tmp_path, f"20260103-00000{n}-new.trace", 100 - n) for n in range(3)]
    assert sessions.prune(tmp_path, most=2) == [new[0], old]
    assert {path.name for path in tmp_path.iterdir()} == {p.name for p in (marked, renamed, new[1], new[2])}


def test_bytes_are_bounded_too(tmp_path):
    old = saved(tmp_path, "20260102-000000-old.trace", 700)
    new = saved(tmp_path, "20260103-000000-new.trace", 7)
    assert sessions.prune(tmp_path, most_bytes=new.stat().st_size + 10) == [old]


def test_an_app_is_given_a_place_only_by_the_command_line():
    app = InspectorApp(LoadSettings(), Settings(), Prefill("x", None), engine=FakeEngine())
    assert app.recorder.directory is None


def test_the_first_prompt_begins_the_file(tmp_path):
    kept = recording(tmp_path)
    for record in Session().load():
        kept.receive(record)
    assert list(tmp_path.iterdir()) == []
    opened = next(r for r in Session().open() if isinstance(r, PromptOpened))
    kept.receive(opened)
    assert kept.path.exists()
    kept.close()


def test_another_model_begins_another_file(tmp_path):
    told: list[str] = []
    kept = recording(tmp_path, told)
    lived(kept)
    first, entries = kept.path, list(kept.entries)
    lived(kept, 2)
    assert told == ["The session with the model before is saved: ctrl+o goes back to it."]
    assert first is not None
    assert kept.path not in (None, first)
    assert values(first) == [entry.value for entry in entries]
    kept.close()
    assert kept.saved != first
    assert [type(value) for value in values(kept.saved)].count(Step) == 2


def test_another_model_after_a_prompt_alone_leaves_no_file(tmp_path):
    kept = recording(tmp_path)
    lived(kept, 0)
    lived(kept, 2)
    kept.close()
    assert list(tmp_path.glob("*.trace")) == [kept.saved]


def test_in_memory_all_models_of_a_session_stay(tmp_path):
    kept = recording(None)
    lived(kept)
    lived(kept, 2)
    assert [type(entry.value) for entry in kept.entries].count(Step) == 7
