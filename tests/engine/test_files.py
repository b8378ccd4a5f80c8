"""The one way to read files that somebody else made: it never waits for a writer and never reads without end."""

from __future__ import annotations

import io
import os
import shutil
import socket
import sys
from pathlib import Path

import pytest

from engine.errors import TraceError
from engine.files import CONFIG_LIMIT, check_regular, open_regular, read_at_most, read_regular
from engine.trace import TraceReader
from tests.system import short_directory


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
        with pytest.raises(TraceError, match=f"{name} can't be read: it is a named pipe"):
            TraceReader(tmp_path / name)


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
