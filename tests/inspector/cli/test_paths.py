"""Paths of the command line that no file can have: one line and exit status 2, for every flag that takes one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from engine.protocol import Undeleted
from engine.recording import Entry
from engine.recording.file import MAGIC, FrameWriter
from inspector.cli.arguments import place
from inspector.cli.main import main

FLAGS = [
    ["generate", "-p", "hi", "--model"],
    ["generate", "-p", "hi", "--adapter-path"],
    ["generate", "--prompt-file"],
    ["score"],
    ["score", __file__, "-o"],
    ["export", "--to", "md", "-o"],
    ["export", "--to", "md"],
]
NAMES = {"user": "~nosuchuser/x", "path": "a" * 5000, "name": "b" * 300, "nul": "c\0d"}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("flags", FLAGS, ids=lambda flags: " ".join(flags[::2]))
def test_a_name_that_no_file_can_have_is_one_line(
    flags: list[str], name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*flags, NAMES[name]]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "fault" not in error
    assert len(error) < 400


@pytest.mark.parametrize("flags", FLAGS, ids=lambda flags: " ".join(flags[::2]))
def test_a_current_directory_that_was_deleted_is_one_line(
    flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert main([*flags, "x"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "fault" not in error


def test_a_file_is_never_put_in_the_place_of_a_pipe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "pipe")
    for command in (["score", __file__, "--force", "-o"], ["export", "--to", "md", "--force", "-o"]):
        assert main([*command, str(tmp_path / "pipe")]) == 2
        assert "is a pipe: only a file can be written." in capsys.readouterr().err
    assert (tmp_path / "pipe").is_fifo()
    assert place(str(tmp_path / "file"), force=False, instead="it is a table") == tmp_path / "file"


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="looks at what the process has open")
def test_an_interrupt_while_a_recording_is_read_ends_it_at_once(tmp_path: Path) -> None:
    long, writer = tmp_path / "long.trace", FrameWriter("test 1")
    long.write_bytes(MAGIC + writer.header() + writer.entry(Entry(Undeleted(1))) * 4_000_000)
    arguments = ["export", str(long), "--to", "md", "-o", str(tmp_path / "out.md")]
    command = [sys.executable, "-m", "inspector", *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as export:
        while str(long) not in _open(export.pid):
            assert export.poll() is None
            time.sleep(0.01)
        export.send_signal(signal.SIGINT)
        _, error = export.communicate(timeout=60)
    assert (export.returncode, error) == (130, "")
    assert not (tmp_path / "out.md").exists()


def _open(process: int) -> list[str]:
    """The files that a process has open; one may be closed while they are looked at."""
    directory, found = Path(f"/proc/{process}/fd"), []
    for name in os.listdir(directory) if directory.is_dir() else []:
        with suppress(FileNotFoundError):
            found.append(os.readlink(directory / name))
    return found
