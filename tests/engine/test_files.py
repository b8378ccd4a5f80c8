"""Paths that a person typed, and files that are read and written."""

from __future__ import annotations

import io
import os
import shutil
import socket
import stat
import sys
from contextlib import chdir
from pathlib import Path
from threading import Event

import pytest

from engine.errors import EngineError, PathError, RecordingError
from engine.files import (
    CONFIG_LIMIT,
    PRIVATE,
    check_regular,
    free,
    here,
    open_regular,
    read_at_most,
    read_regular,
    replacing,
    typed,
)
from engine.model.load import resolve
from engine.recording import RecordingReader
from tests.system import short_directory

NAMES = ["~nosuchuser/x", "a" * 5000, "b" * 300, "c\0d", "\ud800"]
"""What no file can be called."""


def write(path: Path, text: str, force: bool = False, mode: int = 0o666) -> None:
    with replacing(path, force, mode) as file:
        file.write(text.encode())


def permissions(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current directory was deleted."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()


# ---- what a person types ----------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_no_file_can_have_is_told_in_a_short_line(name: str) -> None:
    with pytest.raises(PathError) as raised:
        typed(name)
    assert raised.value.hint
    assert len(str(raised.value)) < 400
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", NAMES)
def test_a_model_of_such_a_name_is_told(name: str) -> None:
    with pytest.raises(EngineError):
        resolve(name, lambda record: None, Event())


def test_a_home_directory_that_nobody_knows_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", lambda uid: (_ for _ in ()).throw(KeyError(uid)))
    with pytest.raises(PathError, match="No home directory is known for ~"):
        typed("~/x")


def test_what_is_not_there_is_a_path_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "file").touch()
    assert typed("~/none") == tmp_path / "none"
    assert typed("~/file/none") == tmp_path / "file" / "none"


def test_a_place_that_may_not_be_looked_at_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(self: Path, **options: object) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "stat", forbidden)
    with pytest.raises(PathError, match=r"secret/x can't be read: Permission denied\. Check the permissions"):
        typed("secret/x")


def test_a_current_directory_that_was_deleted_is_told(gone: None, tmp_path: Path) -> None:
    for name in ("x", "./x", "../x"):
        with pytest.raises(PathError, match="current directory is gone"):
            free(typed(name), force=True)
    with pytest.raises(PathError, match="current directory is gone"):
        here()
    write(tmp_path / "x", "elsewhere")


# ---- what is written --------------------------------------------------------------------------


def test_a_file_that_is_there_is_kept_unless_it_is_to_go(tmp_path: Path) -> None:
    place = tmp_path / "a.md"
    place.write_text("mine")
    with pytest.raises(PathError, match="already exists"):
        write(place, "new")
    assert place.read_text() == "mine"
    write(place, "new", force=True)
    assert place.read_text() == "new"
    assert [each.name for each in tmp_path.iterdir()] == ["a.md"]


def test_a_file_that_comes_meanwhile_is_kept(tmp_path: Path) -> None:
    place = tmp_path / "a.md"
    writing = replacing(place, force=False)
    writing.__enter__().write(b"new")
    place.write_text("theirs")
    with pytest.raises(PathError, match="already exists"):
        writing.__exit__(None, None, None)
    assert place.read_text() == "theirs"
    assert [each.name for each in tmp_path.iterdir()] == ["a.md"]


def test_a_file_that_comes_in_the_last_moment_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "a.md"
    link = os.link

    def late(source: Path, target: Path) -> None:
        place.write_text("theirs")
        link(source, target)

    monkeypatch.setattr(os, "link", late)
    with pytest.raises(PathError, match="already exists"):
        write(place, "new")
    assert place.read_text() == "theirs"


def test_a_file_that_can_not_be_written_whole_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "a.md"
    place.write_text("mine")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(PathError, match=r"can't be written: No space left on device\. Make room"):
        write(place, "new", force=True)
    assert place.read_text() == "mine"
    assert [each.name for each in tmp_path.iterdir()] == ["a.md"]


def test_a_part_that_can_not_be_removed_hides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("engine.files.os.open", refused)
    monkeypatch.setattr(Path, "unlink", refused)
    with pytest.raises(PathError, match=r"can't be written: Permission denied\."):
        write(tmp_path / "a.md", "new")


def test_a_directory_that_may_not_be_listed_is_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = os.open

    def open_(path: object, flags: int, *more: int) -> int:
        if path == tmp_path:
            raise PermissionError(13, "Permission denied")
        return opened(path, flags, *more)  # type: ignore[arg-type]

    monkeypatch.setattr("engine.files.os.open", open_)
    write(tmp_path / "a.md", "new")
    assert (tmp_path / "a.md").read_text() == "new"


def test_a_link_stays_a_link_and_a_directory_is_none(tmp_path: Path) -> None:
    (tmp_path / "real.md").write_text("mine")
    (tmp_path / "link.md").symlink_to(tmp_path / "real.md")
    write(tmp_path / "link.md", "new", force=True)
    assert (tmp_path / "link.md").is_symlink()
    assert (tmp_path / "real.md").read_text() == "new"
    with pytest.raises(PathError, match="is a directory"):
        write(tmp_path, "new", force=True)
    with pytest.raises(PathError, match="no directory"):
        write(tmp_path / "none" / "a.md", "new")
    with pytest.raises(PathError, match="can't be written: File name too long"):
        free(tmp_path / ("x" * 300), force=True)


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("target", ["none", "none/deeper", "link"])
def test_nothing_is_written_through_a_link_that_leads_nowhere(
    tmp_path: Path, target: str, force: bool
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / target)
    with pytest.raises(PathError, match="link"):
        write(tmp_path / "link", "new", force)
    assert [each.name for each in tmp_path.iterdir()] == ["link"]


def special(directory: Path, kind: str) -> Path:
    """A pipe, a socket or a device of the test's own: never one of the system's."""
    place = directory / "special"
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as made, chdir(directory):
            made.bind(place.name)  # its whole path may be longer than one of a socket
    else:
        try:
            os.mknod(place, stat.S_IFCHR | 0o600, os.makedev(1, 3))
        except PermissionError:
            pytest.skip("only root makes devices")
    return place


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("kind", ["pipe", "socket", "device"])
def test_what_is_no_file_is_never_replaced(
    tmp_path: Path, kind: str, linked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's name is short
    place = special(Path(), kind)
    before = place.lstat()
    if linked:
        Path("link").symlink_to("special")
    with pytest.raises(PathError, match=f"is a {kind}: only a file can be written"):
        write(Path("link" if linked else "special"), "new", force=True)
    assert place.lstat() == before


def test_a_new_file_is_private_where_that_is_wanted_and_an_old_one_stays_as_it_is(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        write(tmp_path / "private", "x", mode=PRIVATE)
        write(tmp_path / "shared", "x")
        (tmp_path / "old").touch(0o640)
        write(tmp_path / "old", "x", force=True, mode=PRIVATE)
    finally:
        os.umask(before)
    assert [permissions(tmp_path / name) for name in ("private", "shared", "old")] == [0o600, 0o644, 0o640]


def test_a_name_as_long_as_the_file_system_takes_is_written(tmp_path: Path) -> None:
    place = tmp_path / ("狐" * 85)  # 255 bytes
    write(place, "new")
    write(place, "newer", force=True)
    assert place.read_text() == "newer"


def test_a_directory_that_may_not_be_written_to_is_told_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # as it is for all but root
    with pytest.raises(PathError, match="a can't be written: Permission denied"):
        free(tmp_path / "a", force=False)


# ---- files that are read -----------------------------------------------------------------------


def test_a_regular_file_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 1000)
    (tmp_path / "link").symlink_to("file")
    assert read_regular(tmp_path / "link", 1000) == b"x" * 1000
    with open_regular(str(tmp_path / "file")) as file:
        assert file.peek(1)[:1] == b"x"
    check_regular(tmp_path / "file")


def test_a_named_pipe_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for name in ("pipe", "link"):
        with pytest.raises(OSError, match="it is a named pipe, not a regular file"):
            read_regular(tmp_path / name, 1000)
        with pytest.raises(RecordingError, match=f"{name} can't be read: it is a named pipe"):
            RecordingReader(tmp_path / name)


def test_devices_sockets_and_directories_are_refused(tmp_path: Path) -> None:
    short = short_directory()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{short}/socket")
        with pytest.raises(OSError, match="it is a socket"):
            open_regular(f"{short}/socket")
    shutil.rmtree(short)
    with pytest.raises(OSError, match="it is a device"):
        open_regular("/dev/zero")
    with pytest.raises(IsADirectoryError):
        open_regular(tmp_path)


def test_names_that_no_file_has(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    for name in ("x\0y", "x\ud800", "x" * 5000, "nothing", "a", "a/b"):
        with pytest.raises(OSError, match=r"Errno"):
            open_regular(tmp_path / name)


def test_no_more_is_read_than_was_allowed(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(2**40)
    for read in (read_regular, check_regular):
        with pytest.raises(OSError, match="it has more than 64 MiB"):
            read(tmp_path / "sparse", CONFIG_LIMIT)
    check_regular(tmp_path / "sparse")
    assert read_at_most(io.BytesIO(b"x" * 100), 10) == b"x" * 11


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has files that say that they have no bytes")
def test_no_more_is_read_of_a_file_without_a_size(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="it has more than 10 bytes"):
        read_regular("/proc/self/status", 10)
