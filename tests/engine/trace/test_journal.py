"""A session saved as it happens: nothing is lost but the last moment, and what goes wrong is told once."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from engine.errors import TraceError
from engine.protocol import Loading, LookedAhead, Marked, Step
from engine.trace import Entry, Journal, TraceChanged, in_use, load, peek, save_as, worth_keeping
from engine.trace import journal as trace_journal
from tests.engine.trace.made_records import session
from tests.system import python

PROGRAM = "test 1"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "sessions" / "a.trace"


def values_in(path: Path, torn_ok: bool = False) -> list[Any]:
    return [entry.value for entry in load(path, torn_ok).entries]


def test_a_file_has_its_name_only_with_its_first_line(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.link
    monkeypatch.setattr(os, "link", lambda a, b: (load(a), real(a, b)))
    Journal.create(path, PROGRAM).close()
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_a_file_system_without_links_will_do(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", none)
    Journal.create(path, PROGRAM).close()
    with pytest.raises(TraceError, match="File exists"):
        Journal.create(path, PROGRAM)
    assert values_in(path) == []
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def until(holds: Any, seconds: float = 60.0) -> None:
    """Wait for what another thread does."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.005)


# ---- as it happens ----------------------------------------------------------------------------


def test_what_is_written_is_in_the_file_a_moment_later(path: Path) -> None:
    journal, values = Journal.create(path, PROGRAM), session()
    for count, value in enumerate(values, 1):
        journal.write(value)
        until(lambda count=count: len(values_in(path, torn_ok=True)) == count)
    assert values_in(path) == values  # with the journal open
    journal.close()
    assert values_in(path) == values


def test_times_are_those_of_the_session(path: Path) -> None:
    journal = Journal.create(path, PROGRAM)
    journal.write(Marked(1), at=0.25)
    before = journal.clock
    journal.write(Marked(2))
    journal.close()
    first, second = load(path).entries
    assert first.at == 0.25
    assert before - 0.001 <= second.at <= journal.clock


def test_writing_takes_the_caller_no_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where the disk does not answer."""
    journal, answers = Journal.create(path, PROGRAM), threading.Event()
    real, waiting = os.fsync, threading.Event()

    def hang(descriptor: int) -> None:
        waiting.set()
        assert answers.wait(60)
        real(descriptor)

    monkeypatch.setattr(trace_journal, "SYNC_SECONDS", 0.0)
    monkeypatch.setattr(os, "fsync", hang)
    steps = [value for value in session() if isinstance(value, Step)]
    for step in steps:
        journal.write(step)
    assert waiting.wait(60)
    for step in steps:
        journal.write(step)  # would never return if it waited for the disk
    answers.set()
    journal.close(60)


def test_the_disk_is_reached_once_a_second_and_at_the_end(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, synced = Journal.create(path, PROGRAM), []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda descriptor: (synced.append(time.monotonic()), real(descriptor)))
    monkeypatch.setattr(trace_journal, "SYNC_SECONDS", 0.3)
    begun = time.monotonic()
    while time.monotonic() - begun < 0.5:
        journal.write(Marked(1))
        time.sleep(0.01)
    last = time.monotonic()
    until(lambda: synced and synced[-1] > last)  # what was written last, though nothing followed
    assert all(later - earlier >= 0.25 for earlier, later in pairwise(synced))
    count = len(synced)
    time.sleep(0.4)
    assert len(synced) == count
    journal.close()


# ---- going on ---------------------------------------------------------------------------------


def test_a_session_is_gone_on_with(path: Path) -> None:
    values = session()
    journal = Journal.create(path, PROGRAM)
    for value in values[:20]:
        journal.write(value)
    journal.close()
    entries, reader, journal = Journal.resume(path, "test 2")
    assert [entry.value for entry in entries] == values[:20]
    assert (reader.torn, reader.header.program) == (0, PROGRAM)
    assert journal.clock >= entries[-1].at
    for value in values[20:]:
        journal.write(value)
    journal.close()
    assert values_in(path) == values
    assert load(path).header.program == PROGRAM
    times = [entry.at for entry in load(path).entries]
    assert times == sorted(times)


@pytest.mark.parametrize("cut", [1, 2, 40, 300])
def test_an_incomplete_end_is_torn_off_and_the_file_gone_on_with(path: Path, cut: int) -> None:
    values = session()
    journal = Journal.create(path, PROGRAM)
    for value in values:
        journal.write(value)
    journal.close()
    os.truncate(path, path.stat().st_size - cut)
    entries, reader, journal = Journal.resume(path, PROGRAM)
    assert [entry.value for entry in entries] == values[: len(entries)]
    assert len(values) - len(entries) in (1, 2, 3, 4)
    assert reader.torn > 0 or cut > 40
    journal.write(values[0])
    journal.close()
    assert values_in(path) == [*values[: len(entries)], values[0]]


def test_a_damaged_file_is_not_gone_on_with_and_left_as_it_is(path: Path) -> None:
    journal = Journal.create(path, PROGRAM)
    for value in session():
        journal.write(value)
    journal.close()
    data = bytearray(path.read_bytes())
    data[data.index(b'{"Step"') + 30] ^= 1
    path.write_bytes(data)
    with pytest.raises(TraceError, match="checksum"):
        Journal.resume(path, PROGRAM)
    assert path.read_bytes() == data
    assert not in_use(path)


def test_entries_of_another_trace_keep_what_is_unknown(path: Path) -> None:
    journal = Journal.create(path, PROGRAM)
    entry = Entry(Marked(3), 1.5, ((None, {"by": "me"}),))
    journal.write_entry(entry)
    journal.close()
    assert load(path).entries == [entry]


# ---- one program a file -----------------------------------------------------------------------


def test_two_programs_never_append_to_one_file(path: Path) -> None:
    journal = Journal.create(path, PROGRAM)
    journal.write(Marked(1))
    journal.flush()
    assert in_use(path)
    assert peek(path).in_use
    with pytest.raises(TraceError, match="is in use: another inspector is appending to it"):
        Journal.resume(path, PROGRAM)
    other = f"from engine.trace import Journal; Journal.resume({str(path)!r}, 'x')"
    assert "is in use" in python(other).stderr
    with pytest.raises(TraceError, match="File exists"):
        Journal.create(path, PROGRAM)
    journal.close()
    assert not in_use(path)
    Journal.resume(path, PROGRAM)[2].close()


@pytest.mark.parametrize("form", ["gz", "zst"])
def test_a_compressed_file_is_not_gone_on_with_and_left_as_it_is(path: Path, form: str) -> None:
    path = path.with_suffix(f".trace.{form}")
    path.parent.mkdir(parents=True)
    save_as(path, [Entry(value, 0.0) for value in session()], PROGRAM)
    content = path.read_bytes()
    with pytest.raises(TraceError, match="is compressed, so the session can't be continued in it") as refused:
        Journal.resume(path, PROGRAM)
    assert refused.value.hint == "Save it under a name without .gz or .zst."
    assert path.read_bytes() == content
    assert not in_use(path)


# ---- what goes wrong --------------------------------------------------------------------------


def failed(journal: Journal) -> TraceError:
    """The failure that the next writes raise; once."""
    with pytest.raises(TraceError) as raised:  # noqa: PT012
        for _ in range(500):
            journal.write(Marked(1))
            time.sleep(0.01)
    assert raised.value.hint
    assert journal.off
    journal.write(Marked(1))
    journal.flush()
    journal.close()
    return raised.value


def test_a_full_disk_is_told_once_and_leaves_whole_lines(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, real = Journal.create(path, PROGRAM), os.write
    values = session()
    for value in values:
        journal.write(value)
    journal.flush()

    def full(descriptor: int, data: Any) -> int:
        if len(data) < 40:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, data[: len(data) // 2])

    monkeypatch.setattr(trace_journal.os, "write", full)
    error = failed(journal)
    monkeypatch.undo()
    assert f"{path} can't be written: No space left on device" in error.message
    assert values_in(path) == values


def test_a_removed_file_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_journal, "SYNC_SECONDS", 0.02)
    journal = Journal.create(path, PROGRAM)
    path.unlink()
    assert "was removed: the session is no longer saved" in failed(journal).message


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def appended(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"x\n")


def replaced(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    other.rename(path)


@pytest.mark.parametrize("change", [emptied, appended, replaced])
@pytest.mark.parametrize("writes", [True, False])
def test_a_file_that_another_program_changed_is_left_as_it_is(path: Path, change: Any, writes: bool) -> None:
    """It isn't written on at the old place, where it would begin with a hole, and closing it tells, too."""
    journal = Journal.create(path, PROGRAM)
    for value in session():
        journal.write(value)
    journal.flush()
    change(path)
    content = path.read_bytes()
    if writes:
        assert isinstance(failed(journal), TraceChanged)
    with pytest.raises(TraceChanged, match="Another program changed") if not writes else nullcontext():
        journal.close()
    assert path.read_bytes() == content


def test_a_file_of_another_name_is_written_on(path: Path) -> None:
    journal = Journal.create(path, PROGRAM)
    path.rename(path.with_name("b.trace"))
    journal.write(Marked(1))
    journal.close()
    assert values_in(path.with_name("b.trace")) == [Marked(1)]


def test_what_can_not_be_written_is_told(path: Path) -> None:
    journal = Journal.create(path, PROGRAM)
    journal.write(Marked(1, note="kept"))
    journal.flush()
    step = next(value for value in session() if isinstance(value, Step))
    object.__setattr__(step, "prob", float("nan"))
    journal.write(step)
    assert "Step can't be written to a trace" in failed(journal).message
    assert values_in(path) == [Marked(1, note="kept")]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_may_not_be_written_is_told(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(TraceError, match="Permission denied"):
        Journal.create(tmp_path / "a.trace", PROGRAM)


def test_a_place_that_is_none_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TraceError, match=r"can't be written: (File exists|Not a directory)"):
        Journal.create(tmp_path / "file" / "a.trace", PROGRAM)
    with pytest.raises(TraceError, match="can't be written: No such file"):
        Journal.resume(tmp_path / "none", PROGRAM)


def test_what_has_no_place_in_a_trace_is_the_callers_fault(path: Path) -> None:
    journal = Journal.create(path, PROGRAM)
    with pytest.raises(TypeError, match="str has no place in a trace"):
        journal.write("text")  # type: ignore[arg-type]
    journal.close()


def test_progress_is_not_worth_keeping() -> None:
    assert not worth_keeping(Loading("weights", 1, 2, "a"))
    assert not worth_keeping(LookedAhead(1, (), 8, last=False, ms=1.0))
    assert worth_keeping(LookedAhead(1, (), 8, last=True, ms=1.0))
    assert worth_keeping(Marked(1))


# ---- kill -9 ----------------------------------------------------------------------------------


def kill(tmp_path: Path, count: int, seed: int) -> None:
    """Kill so many sessions: every file resumes, and nothing older than a second is lost."""
    command = [sys.executable, "-m", "tests.engine.trace.kill", str(tmp_path), str(count), str(seed)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    found = [json.loads(line) for line in ran.stdout.splitlines()]
    assert len(found) == count
    assert max(each["lost_s"] for each in found) < 1.0
    assert max(each["found"] for each in found) > 100
    told, lost = sum(e["told"] for e in found), sum(max(0, e["told"] - e["found"]) for e in found)
    torn = sum(e["torn"] > 0 for e in found)
    worst = max(e["lost_s"] for e in found) * 1000
    print(f"{count} killed: {lost} of {told} records lost, none older than {worst:.0f} ms; {torn} files torn")


@pytest.mark.slow
def test_sessions_that_are_killed_resume(tmp_path: Path) -> None:
    kill(tmp_path, 20, seed=1)


@pytest.mark.slow
def test_two_hundred_sessions_that_are_killed_resume(tmp_path: Path) -> None:
    kill(tmp_path, 200, seed=2)
