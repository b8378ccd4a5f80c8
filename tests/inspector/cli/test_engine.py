"""`inspector engine` and `--connect`: started, connected to, refused in one line, ended without leaving anything."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from inspector.cli import main as cli
from tests.system import short_directory

GENERATE = ["generate", "-p", "Once upon a time", "--ignore-chat-template", "-m", "8", "--temp", "0"]


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with a short path, as the state of the user: paths of sockets are bounded."""
    directory = short_directory()
    monkeypatch.setenv("XDG_STATE_HOME", str(directory))
    yield directory
    shutil.rmtree(directory)


def started(*flags: str) -> tuple[subprocess.Popen[str], str]:
    """An engine in a process, and the line that it printed."""
    command = [sys.executable, "-m", "inspector", "engine", *flags]
    engine = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert engine.stdout is not None
    return engine, engine.stdout.readline()


def ended(engine: subprocess.Popen[str], number: int) -> str:
    """What an engine wrote to standard error until a signal had ended it."""
    engine.send_signal(number)
    errors = engine.communicate(timeout=60)[1]
    assert engine.returncode == 128 + number
    return errors


def test_an_engine_serves_commands_and_leaves_nothing_behind(
    short: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engine, line = started("--idle", "5")
    state = short / "mlx-inspector"
    try:
        place = state / "engine" / "engine.sock"
        here, there = line.split(" On another machine: ")
        assert here == f"Engine at unix:{place}. Here: inspector --connect unix:{place}."
        assert there.startswith(f"ssh -N -L 7531:{place} HOST, then inspector --connect 127.0.0.1:7531 ")
        assert line.count("\n") == 1
        assert cli.main(GENERATE) == 0
        local = capsys.readouterr().out
        for _ in range(2):  # one client after another
            assert cli.main([*GENERATE, "--connect", f"unix:{place}"]) == 0
            assert capsys.readouterr().out == local
        assert cli.main([*GENERATE, "--connect", f"unix:{place}", "--model", "/nowhere"]) == 2
        assert (
            capsys.readouterr().err
            == "inspector: error: No such directory: /nowhere. Check the path's spelling.\n"
        )
        assert cli.main(["engine"]) == 2
        assert "already. End it, or choose another path." in capsys.readouterr().err
    finally:
        errors = ended(engine, signal.SIGTERM)
    assert errors.splitlines()[:2] == [
        "Client 1 is connected.",
        "Client 1 has gone: it closed the connection.",
    ]
    assert os.listdir(state / "engine") == []
    assert cli.main([*GENERATE, "--connect", f"unix:{place}"]) == 2
    wanted = (
        f"No engine answers at unix:{place}: No such file or directory. Start one there: inspector engine."
    )
    assert wanted in capsys.readouterr().err


def test_an_engine_that_nobody_uses_ends_by_itself(short: Path) -> None:
    engine, _ = started("--idle", "0.001")
    assert (
        engine.communicate(timeout=60)[1] == "The engine ends: no client was connected for 0.001 minutes.\n"
    )
    assert engine.returncode == 0
