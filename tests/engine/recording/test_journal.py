"""A session saved as it happens: nothing is lost but the last moment, and what goes wrong is said once."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from engine.errors import RecordingError
from engine.protocol import Marked
from engine.recording import Entry, Journal, RecordingChanged, RecordingReader, in_use, load, peek, save_as
from engine.recording import journal as module
from tests.engine.recording.made_records import session
from tests.engine.recording.resumed import resumed
from tests.system import python

PROGRAM = "test 1"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "sessions" / "a.trace"


def values_in(path: Path, torn_ok: bool = False) -> list[Any]:
    return [entry.value for entry in load(path, torn_ok).entries]


def until(holds: Callable[[], Any]) -> None:
    """Wait for what another thread does."""
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.005)


def journaled(path: Path, values: list[Any]) -> Journal:
    """A journal that has written some values."""
    journal = Journal.create(path, PROGRAM)
    for value in values:
        journal.write(Entry(value))
    journal.flush()
    return journal


# ---- as it happens ----------------------------------------------------------------------------


def test_a_file_has_its_name_only_with_its_header(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.link
    monkeypatch.setattr(os, "link", lambda a, b: (load(a), real(a, b)))
    Journal.create(path, PROGRAM).close()
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_system_without_links_will_do(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", none)
    Journal.create(path, PROGRAM).close()
    with pytest.raises(RecordingError, match="File exists"):
        Journal.create(path, PROGRAM)
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_a_file_that_can_not_be_begun_is_closed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(module._File, "sync", full)
    before = len(os.listdir("/dev/fd"))
    with pytest.raises(RecordingError, match="No space left"):
        Journal.create(path, PROGRAM)
    assert len(os.listdir("/dev/fd")) == before


def test_what_is_written_is_in_the_file_a_moment_later(path: Path) -> None:
    journal, values = Journal.create(path, PROGRAM), session()

    def reached(count: int) -> bool:
        return len(values_in(path, torn_ok=True)) == count

    for count, value in enumerate(values, 1):
        journal.write(Entry(value))
        until(partial(reached, count))
    assert values_in(path) == values  # with the journal open
    journal.close()


def test_times_are_those_of_the_session(path: Path) -> None:
    journal = Journal.create(path, PROGRAM)
    journal.write(Entry(Marked(1), 0.25))
    journal.write(Entry(Marked(3), 1.5))
    journal.close()
    assert [entry.at for entry in load(path).entries] == [0.25, 1.5]


def test_writing_waits_for_no_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, answers = Journal.create(path, PROGRAM), threading.Event()
    waiting = threading.Event()

    def hang(descriptor: int) -> None:
        waiting.set()
        assert answers.wait(60)

    monkeypatch.setattr(module, "SYNC_SECONDS", 0.0)
    monkeypatch.setattr(os, "fsync", hang)
    journal.write(Entry(Marked(1)))
    assert waiting.wait(60)
    journal.write(Entry(Marked(2)))  # would never return if it waited for the disk
    answers.set()
    journal.close(60)
    assert values_in(path) == [Marked(1), Marked(2)]


@pytest.mark.parametrize("seconds", [0.02, 3600.0])
def test_the_disk_is_reached_when_it_is_due_and_at_a_flush(
    path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    journal, synced = Journal.create(path, PROGRAM), threading.Event()
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.set())
    monkeypatch.setattr(module, "SYNC_SECONDS", seconds)
    journal.write(Entry(Marked(1)))
    until(lambda: values_in(path, torn_ok=True) == [Marked(1)])
    if seconds < 1:
        assert synced.wait(60)  # though nothing followed
    assert synced.is_set() == (seconds < 1)
    journal.flush(60)
    assert synced.is_set()
    journal.close()


# ---- continued --------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [0, 1, 2, 40, 300, 3000])
def test_a_session_is_continued_without_its_incomplete_end(path: Path, cut: int) -> None:
    values = session()
    journaled(path, values).close()
    os.truncate(path, path.stat().st_size - cut)
    entries, reader, journal = resumed(path, "test 2")
    known = len(entries)
    assert [entry.value for entry in entries] == values[:known]
    assert bool(cut) == (known < len(values)) == bool(reader.torn)
    for value in values[known:]:
        journal.write(Entry(value))
    journal.close()
    found = load(path)
    assert [entry.value for entry in found.entries] == values
    assert found.header.program == PROGRAM


def test_a_saved_file_is_continued_behind_its_end(tmp_path: Path) -> None:
    save_as(tmp_path / "a.trace", [Entry(Marked(1))], PROGRAM)
    journal = resumed(tmp_path / "a.trace", PROGRAM)[2]
    journal.write(Entry(Marked(2)))
    journal.close()
    assert values_in(tmp_path / "a.trace") == [Marked(1), Marked(2)]


def test_a_damaged_or_compressed_file_is_not_continued_and_left_as_it_is(path: Path) -> None:
    journaled(path, session()).close()
    data = bytearray(path.read_bytes())
    data[2000] ^= 1
    path.write_bytes(data)
    packed = path.with_name("b.trace.zst")
    save_as(packed, map(Entry, session()), PROGRAM)
    for each, words in (path, "checksum"), (packed, "is compressed, so the session can't be continued in it"):
        before = each.read_bytes()
        with pytest.raises(RecordingError, match=words):
            resumed(each, PROGRAM)
        assert each.read_bytes() == before
        assert not in_use(each)


def test_a_file_that_has_changed_since_it_was_read_is_left_as_it_is(path: Path) -> None:
    journaled(path, [Marked(1)]).close()
    reader = RecordingReader(path, torn_ok=True)
    assert len(list(reader)) == 1
    resumed(path, "another")[2].close()
    before = path.read_bytes()
    with pytest.raises(RecordingError, match="has changed meanwhile: the session isn't appended to it"):
        Journal.resume(reader, PROGRAM)
    assert path.read_bytes() == before
    assert not in_use(path)


def test_two_programs_never_append_to_one_file(path: Path) -> None:
    journal = journaled(path, [Marked(1)])
    assert in_use(path)
    assert peek(path).in_use
    with pytest.raises(RecordingError, match="is in use: another inspector is appending to it"):
        resumed(path, PROGRAM)
    other = f"from tests.engine.recording.resumed import resumed; resumed({str(path)!r}, 'x')"
    assert "is in use" in python(other).stderr
    journal.close()
    assert not in_use(path)
    resumed(path, PROGRAM)[2].close()


@pytest.mark.parametrize("count", [5, pytest.param(200, marks=pytest.mark.slow)])
def test_sessions_that_are_killed_are_continued(tmp_path: Path, count: int) -> None:
    """Nothing is cut off but an incomplete last frame, and nothing older than a second is lost."""
    command = [sys.executable, "-m", "tests.engine.recording.kill", str(tmp_path), str(count)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    found = [line.split() for line in ran.stdout.splitlines()]
    assert len(found) == count
    assert all(float(lost) < 1.0 for _, _, lost in found)
    assert any(int(entries) for _, entries, _ in found)


# ---- what goes wrong --------------------------------------------------------------------------


def failed(journal: Journal) -> RecordingError:
    """The failure that one of the next writes raises, and none after it."""
    found: list[RecordingError] = []

    def raises() -> bool:
        try:
            journal.write(Entry(Marked(1)))
        except RecordingError as error:
            found.append(error)
        return bool(found)

    until(raises)
    assert found[0].hint
    assert journal.off
    journal.write(Entry(Marked(1)))
    journal.flush()
    journal.close()
    return found[0]


def test_a_full_disk_is_said_once_and_leaves_whole_frames(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = session()
    journal, real = journaled(path, values), os.write

    def full(descriptor: int, data: Any) -> int:
        if len(data) < 40:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, data[: len(data) // 2])

    monkeypatch.setattr(os, "write", full)
    error = failed(journal)
    monkeypatch.undo()
    assert f"{path} can't be written: No space left on device" in error.message
    assert values_in(path) == values


def test_a_removed_file_is_noticed_and_a_renamed_one_written_on(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal.create(path, PROGRAM)
    path.rename(path.with_name("b.trace"))
    journal.write(Entry(Marked(1)))
    journal.close()
    assert values_in(path.with_name("b.trace")) == [Marked(1)]
    monkeypatch.setattr(module, "SYNC_SECONDS", 0.02)
    journal = Journal.create(path, PROGRAM)
    path.unlink()
    assert "was removed: the session is no longer saved" in failed(journal).message


@pytest.mark.parametrize("change", ["emptied", "appended", "replaced"])
@pytest.mark.parametrize("writes", [True, False])
def test_a_file_that_another_program_changed_is_left_as_it_is(path: Path, change: str, writes: bool) -> None:
    """It isn't written to at the old place, where it would begin with a hole, and closing it says so, too."""
    journal = journaled(path, session())
    if change == "replaced":
        path.with_name("other").write_bytes(path.read_bytes())
        path.with_name("other").rename(path)
    else:
        with path.open("wb" if change == "emptied" else "ab") as file:
            file.write(b"" if change == "emptied" else b"x\n")
    content = path.read_bytes()
    if writes:
        assert isinstance(failed(journal), RecordingChanged)
    with pytest.raises(RecordingChanged, match="Another program changed") if not writes else nullcontext():
        journal.close()
    assert path.read_bytes() == content


def test_what_can_not_be_written_is_said(path: Path) -> None:
    journal = journaled(path, [Marked(1, note="kept")])
    journal.write(Entry(Marked(2**64)))
    assert "Marked can't be recorded" in failed(journal).message
    assert values_in(path) == [Marked(1, note="kept")]


def test_a_place_that_is_none_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordingError, match=r"can't be written: (File exists|Not a directory)"):
        Journal.create(tmp_path / "file" / "a.trace", PROGRAM)
    save_as(tmp_path / "gone.trace", [Entry(Marked(1))], PROGRAM)
    read = RecordingReader(tmp_path / "gone.trace")
    assert len(list(read)) == 1
    read.path.unlink()
    with pytest.raises(RecordingError, match="can't be written: No such file"):
        Journal.resume(read, PROGRAM)
    if os.geteuid() != 0:  # root may write everywhere
        tmp_path.chmod(0o500)
        with pytest.raises(RecordingError, match="Permission denied"):
            Journal.create(tmp_path / "a.trace", PROGRAM)
