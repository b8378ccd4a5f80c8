"""Files that are cut short, damaged, none of ours, or still growing; saving one, and looking at its beginning."""

from __future__ import annotations

import os
import random
import stat
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

import pytest

from engine.errors import RecordingError
from engine.protocol import (
    MOST_PACKED,
    Ended,
    Loading,
    LogitsRow,
    LookedAhead,
    Marked,
    PromptOpened,
    PromptToken,
)
from engine.recording import Entry, Journal, RecordingReader, load, peek, save_as, user_message, worth_keeping
from engine.recording import file as recording_file
from engine.recording.file import FRAME_LIMIT, MAGIC, FrameWriter
from engine.settings import Settings
from tests.engine.recording.made_records import entries, frames
from tests.system import python

PROGRAM = "test 1"
FEW = [Entry(Marked(1, note="ü" * 9), 0.5), Entry(Settings(temp=0.8), 1.0), Entry(Ended("Load"), 1.5)]
"""Entries of small files, so that every byte of them can be changed."""


def refused(path: Path, data: bytes | None = None, torn_ok: bool = False) -> RecordingError:
    if data is not None:
        path.unlink(missing_ok=True)
        path.write_bytes(data)
    with pytest.raises(RecordingError) as raised:
        load(path, torn_ok)
    assert raised.value.hint
    assert "\n" not in str(raised.value)
    return raised.value


# ---- cut short, damaged -----------------------------------------------------------------------


def test_a_running_sessions_file_loses_its_incomplete_frame_wherever_it_is_cut(tmp_path: Path) -> None:
    parts, path = [MAGIC, *frames(FEW)], tmp_path / "a.trace"
    ends = list(accumulate(map(len, parts)))
    for cut in range(ends[-1] + 1):
        path.unlink(missing_ok=True)
        path.write_bytes(b"".join(parts)[:cut])
        held = sum(cut >= end for end in ends)
        if held < 2:  # not even its header
            refused(path, torn_ok=True)
            continue
        found = load(path, torn_ok=True)
        assert (found.entries, found.torn) == (FEW[: held - 2], cut - ends[held - 1])
        if cut in ends:
            assert load(path) == found
        else:
            error = refused(path)
            assert (error.entry, "is cut short" in error.message) == (held, True)


def test_zeros_that_a_power_cut_leaves_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.trace"
    path.write_bytes(MAGIC + b"".join(frames(FEW)) + bytes(4096))
    found = load(path, torn_ok=True)
    assert (found.entries, found.torn) == (FEW, 4096)
    assert "is cut short" in refused(path).message
    os.truncate(path, 2 * 2**30)  # nor is more read of a sparse file
    assert load(path, torn_ok=True).torn == FRAME_LIMIT + 8


@pytest.mark.parametrize("name", ["a.trace", "a.trace.zst"])
def test_a_saved_file_is_refused_wherever_it_is_cut_or_changed(tmp_path: Path, name: str) -> None:
    save_as(tmp_path / name, FEW, PROGRAM)
    data, rng, bad = (tmp_path / name).read_bytes(), random.Random(name), tmp_path / "bad"
    for place in range(len(data)):
        refused(bad, data[:place], torn_ok=True)
        bad.write_bytes(data[:place] + bytes([data[place] ^ 1 << rng.randrange(8)]) + data[place + 1 :])
        try:
            found = load(bad, torn_ok=True)
        except RecordingError:
            continue
        assert (found.entries, name) == (FEW, "a.trace.zst")  # Zstandard ignores some bits


def test_damage_in_a_long_file_is_told_with_its_entry(tmp_path: Path) -> None:
    parts, rng = [MAGIC, *frames(entries())], random.Random(1)
    ends = list(accumulate(map(len, parts)))
    for _ in range(200):
        place = rng.randrange(ends[0], ends[-1])
        number = sum(place >= end for end in ends)
        bad = bytearray(b"".join(parts))
        bad[place] ^= 1 << rng.randrange(8)
        error = refused(tmp_path / "a.trace", bytes(bad))
        assert error.entry == number
        if place - ends[number - 1] >= 8:
            assert "was damaged: its checksum differs" in error.message
            assert refused(tmp_path / "a.trace", torn_ok=True).entry == number  # never taken for a torn end


def test_a_saved_file_without_one_of_its_frames_is_refused(tmp_path: Path) -> None:
    writer = FrameWriter(PROGRAM, ends=True)
    parts = [writer.header(), *map(writer.entry, entries()), writer.end()]
    for place in range(len(parts)):
        refused(tmp_path / "a.trace", MAGIC + b"".join(parts[:place] + parts[place + 1 :]))
    (tmp_path / "a.trace").write_bytes(MAGIC + b"".join(parts))
    assert load(tmp_path / "a.trace").entries == entries()


# ---- none of ours -----------------------------------------------------------------------------


def test_what_is_no_recording_is_said_to_be_none(tmp_path: Path) -> None:
    a = tmp_path / "a"
    assert "can't be read: No such file" in refused(tmp_path / "none").message
    assert "can't be read: Is a directory" in refused(tmp_path).message
    assert "it is a device" in refused(Path("/dev/zero")).message
    assert "is empty" in refused(a, b"").message
    for data in (b"\x7fELF" * 999, b"\x1f\x8b" * 99, b'{"mlx-inspector-trace":2}\n', b"mlx", MAGIC[:-2]):
        assert "is not a recording of this program" in refused(a, data).message, data[:9]
    for number in (b"0", b"2", b"10"):
        said = refused(a, MAGIC.replace(b"1", number) + b"more").message
        assert said == f"{a} was written by another version of this program."


def test_a_file_that_is_too_long_is_neither_read_nor_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = MAGIC + b"".join(frames(FEW))
    monkeypatch.setattr(recording_file, "TOTAL_LIMIT", len(data) - 1)
    assert "is too long: a recording has at most 0 MiB" in refused(tmp_path / "a.trace", data).message
    with pytest.raises(RecordingError, match="The recording is too long"):
        save_as(tmp_path / "b.trace", FEW * 2, PROGRAM)
    assert not (tmp_path / "b.trace").exists()


# ---- some of it, and a little at a time -------------------------------------------------------


@pytest.mark.parametrize("kinds", [{"Settings", "Marked"}, {"Step"}, set()])
def test_entries_of_some_kinds_are_read_alone(tmp_path: Path, kinds: set[str]) -> None:
    path = tmp_path / "a.trace"
    save_as(path, entries(), PROGRAM)
    reader = RecordingReader(path, only=kinds)
    found = [(type(entry.value).__name__, entry.at) for entry in reader]
    named = [(type(entry.value).__name__, entry.at) for entry in entries()]
    assert found == [each for each in named if each[0] in kinds]
    assert reader.entries == len(found)
    os.truncate(path, path.stat().st_size - 1)
    with pytest.raises(RecordingError, match="is cut short"):
        list(RecordingReader(path, only=kinds))


def test_progress_grows_to_the_whole(tmp_path: Path) -> None:
    save_as(tmp_path / "a.trace", entries(), PROGRAM)
    reader = RecordingReader(tmp_path / "a.trace")
    found: list[Entry] = []
    shares = [reader.progress]
    for entry in reader:
        found.append(entry)
        shares.append(reader.progress)
    assert found == entries()
    assert shares == sorted(shares)
    assert (reader.progress, list(reader)) == (1.0, [])


def test_a_file_that_grows_is_followed(tmp_path: Path) -> None:
    header, *others = frames(entries())
    (tmp_path / "a.trace").write_bytes(MAGIC + header)
    reader, found = RecordingReader(tmp_path / "a.trace", follow=True), []
    with (tmp_path / "a.trace").open("ab", buffering=0) as file:
        for frame in others:
            for part in (frame[:3], frame[3:20], frame[20:]):
                assert list(reader) == []
                file.write(part)
            found += list(reader)
            assert reader.follows
    assert (found, reader.torn) == (entries(), 0)
    reader.close()
    assert not reader.follows


@pytest.mark.parametrize("how", ["was removed or renamed", "was replaced", "was cut shorter"])
def test_a_followed_file_that_is_another_one_now_is_refused(tmp_path: Path, how: str) -> None:
    path, data = tmp_path / "a.trace", MAGIC + b"".join(frames(FEW))
    path.write_bytes(data)
    reader = RecordingReader(path, follow=True)
    assert list(reader) == FEW
    if how == "was cut shorter":
        os.truncate(path, 60)
    else:
        path.rename(tmp_path / "b.trace")
    if how == "was replaced":
        path.write_bytes(data)
    with pytest.raises(RecordingError, match=how):
        list(reader)
    assert not reader.follows


@pytest.mark.parametrize("name", ["a.trace", "a.trace.zst"])
def test_a_saved_file_is_not_followed_beyond_its_end(tmp_path: Path, name: str) -> None:
    save_as(tmp_path / name, FEW, PROGRAM)
    reader = RecordingReader(tmp_path / name, follow=True)
    assert list(reader) == FEW
    assert not reader.follows


# ---- its beginning ----------------------------------------------------------------------------


def test_a_peek_has_model_and_prompt(tmp_path: Path) -> None:
    path = tmp_path / "a.trace"
    size = save_as(path, entries(), PROGRAM)
    found = peek(path)
    assert (found.model, found.model_path, found.prompt) == ("pocket", "pocket", "Once upon a time,")
    assert (found.size, found.in_use, found.user_message) == (size, False, "Once upon a time,")
    assert found.created.endswith("+00:00")
    assert peek(path, most=2).prompt == ""
    journal = Journal.create(tmp_path / "b.trace", PROGRAM)
    assert peek(tmp_path / "b.trace").in_use
    journal.close()


@pytest.mark.parametrize(
    ("chat", "pieces", "words"),
    [
        (True, ["<s>", "user\nTell", " me", "</s>", "\n", "<s>", "assistant\n"], "Tell me"),
        (True, ["<s>", "system\nBe kind.", "</s>", "<s>", "user\nHi", "</s>", "<s>", "model"], "Hi"),
        (True, ["<s>", "user", "</s>", "\n\nuser\nis a word", "</s>", "assistant", "</s>"], "is a word"),
        (True, ["<s>", "No role"], "No role"),
        (True, ["<s>", "</s>"], "<s></s>"),
        (False, ["<s>", "user\nas it is"], "<s>user\nas it is"),
    ],
)
def test_a_list_shows_the_users_message_without_the_chat_template(
    chat: bool, pieces: list[str], words: str
) -> None:
    tokens = tuple(
        PromptToken(number, number, 0, piece, piece.encode(), piece in ("<s>", "</s>"))
        for number, piece in enumerate(pieces)
    )
    assert user_message(PromptOpened("".join(pieces), chat, tokens, False)) == words


def test_what_is_worth_keeping() -> None:
    kept = [
        LogitsRow(1, 1, "float32", bytes(MOST_PACKED)),
        LookedAhead(1, (), 8, last=True, ms=1.0),
        Marked(1),
    ]
    left = [LogitsRow(1, 1, "float32", bytes(MOST_PACKED + 1)), LookedAhead(1, (), 8, last=False, ms=1.0)]
    assert all(map(worth_keeping, kept))
    assert not any(map(worth_keeping, [*left, Loading("weights", 1, 2, "a")]))


# ---- saving -----------------------------------------------------------------------------------


def test_saving_replaces_a_file_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.trace"
    save_as(path, FEW, PROGRAM)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)

    def broken() -> Iterator[Entry]:
        yield from FEW
        raise RecordingError("Enough.")

    def full(descriptor: int) -> None:
        raise OSError(28, os.strerror(28))

    with pytest.raises(RecordingError, match="Enough"):
        save_as(path, broken(), PROGRAM)
    with pytest.raises(
        RecordingError, match=r"already exists\. Choose another name, or replace it with --force"
    ):
        save_as(path, entries(), PROGRAM, force=False)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RecordingError, match="can't be written: No space left on device"):
        save_as(path, entries(), PROGRAM)
    monkeypatch.undo()
    assert load(path).entries == FEW
    save_as(path, entries(), PROGRAM)
    assert load(path).entries == entries()
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert [each.name for each in tmp_path.iterdir()] == ["a.trace"]


def test_saving_keeps_a_link_a_link_and_names_a_place_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "a.trace").touch()
    (tmp_path / "b").symlink_to(tmp_path / "a.trace")
    save_as(tmp_path / "b", FEW, PROGRAM)
    assert (tmp_path / "b").is_symlink()
    assert load(tmp_path / "a.trace").entries == FEW
    with pytest.raises(RecordingError, match=r"There is no directory .*none. Create it"):
        save_as(tmp_path / "none" / "a.trace", FEW, PROGRAM)
    with pytest.raises(RecordingError, match=r"is a directory. Give the name of a file"):
        save_as(tmp_path, FEW, PROGRAM)


def test_recordings_need_msgspec_alone(tmp_path: Path) -> None:
    code = """
import sys
for name in ("mlx", "mlx_lm", "numpy", "transformers", "textual", "rich", "backports.zstd", "safetensors"):
    sys.modules[name] = None
from engine.recording import load, save_as
found = load(sys.argv[1])
save_as(sys.argv[2], found.entries, "test 1")
assert load(sys.argv[2]).entries == found.entries
"""
    save_as(tmp_path / "a.trace", entries(), PROGRAM)
    done = python(code, str(tmp_path / "a.trace"), str(tmp_path / "b.trace"))
    assert done.returncode == 0, done.stderr
