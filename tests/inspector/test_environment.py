"""Places of the user that can't be used: no home, files where directories should be, nothing writable, a full disk.

Each is told once, and the session goes on.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.breakpoints import Breakpoints
from engine.errors import EngineError
from engine.settings import Settings
from inspector import places
from inspector.config.files import log_crash
from inspector.config.preferences import SavedBreakpoints
from inspector.config.presets import Presets
from tests.inspector.rig import Rig, run

CONFIG = places.config
BROKEN: dict[str, Callable[[Path], Path]] = {
    "a file": lambda top: _file(top / "file"),
    "below a file": lambda top: _file(top / "file") / "deeper",
    "no file system": lambda top: Path("/proc/none"),  # where nobody makes directories, root neither
    "a link to nowhere": lambda top: _link(top / "link"),
}


def _file(path: Path) -> Path:
    path.touch()
    return path


def _link(path: Path) -> Path:
    path.symlink_to(path.parent / "none" / "none")
    return path


@pytest.fixture(params=BROKEN)
def broken(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A directory that can't be made."""
    return BROKEN[request.param](tmp_path)


def test_what_cant_be_read_is_told_once_by_each(broken: Path) -> None:
    assert len(Presets(broken / "presets.json").problems) <= 1
    assert len(SavedBreakpoints(broken / "breakpoints.json").read().problems) <= 1
    assert Presets(broken / "presets.json").names


def test_what_cant_be_kept_is_told_and_nothing_is_lost(broken: Path) -> None:
    for keep in (
        lambda: Presets(broken / "presets.json").save("mine", Settings(temp=0.5)),
        lambda: SavedBreakpoints(broken / "breakpoints.json").save(Breakpoints(text="x")),
    ):
        with pytest.raises(EngineError, match="can't be written") as raised:
            keep()
        assert raised.value.hint


def test_a_log_that_cant_be_written_is_none(broken: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_STATE_HOME"):  # macOS has its place for logs in the home directory
        monkeypatch.setenv(name, str(broken))
    assert log_crash("Step", "trace") is None


@pytest.mark.wide(1)
def test_a_session_that_cant_be_saved_is_told_once_and_goes_on(broken: Path) -> None:
    async def test(rig: Rig) -> None:
        await rig.ready(3)
        await rig.push(rig.session.steps(2))
        assert [note.title for note in rig.app._notifications].count("No longer saved") == 1
        await rig.press("space")
        assert rig.engine.names == ["TakeStep"]

    run(test, save=broken)


def test_a_disk_that_is_full_is_told_once_by_each(
    tmp_path: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*rest: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def test(rig: Rig) -> None:
        await rig.push([*rig.session.load(), *rig.session.open()])
        monkeypatch.setattr(os, "fsync", full)
        for _ in range(3):
            await rig.push(rig.session.steps(1))
            while rig.app.recorder.journal is not None and not rig.app.recorder.journal._failure:
                await rig.pilot.pause(0.01)
        assert [note.title for note in rig.app._notifications].count("No longer saved") == 1
        await rig.press("space")
        assert "TakeStep" in rig.engine.names

    run(test, save=tmp_path / "sessions")
    with pytest.raises(EngineError, match=r"No space left on device\. Make room"):
        Presets().save("mine", Settings(temp=0.5))
    assert list(config.iterdir()) == []


# ---- no home ----------------------------------------------------------------------------------


@pytest.mark.parametrize("platform", ["linux", "darwin"])
@pytest.mark.parametrize("home", [None, "", "relative", "~"])
def test_without_a_home_nothing_is_made_here_and_it_is_told(
    home: str | None, platform: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", platform)
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    if home is not None:
        monkeypatch.setenv("HOME", home)
    monkeypatch.setattr(places, "config", CONFIG)  # the program's own, which other tests replace
    monkeypatch.setattr("pwd.getpwuid", lambda uid: (_ for _ in ()).throw(KeyError(uid)))
    monkeypatch.chdir(tmp_path)
    assert all(
        str(place).startswith("/dev/null/") for place in (places.config(), places.state(), places.log())
    )
    with pytest.raises(EngineError, match="can't be written: Not a directory"):
        Presets(places.config() / "presets.json").save("mine", Settings())
    assert log_crash("Step", "trace") is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("platform", "log"),
    [("linux", "state/mlx-inspector/inspector.log"), ("darwin", "Library/Logs/mlx-inspector.log")],
)
def test_the_log_is_where_it_was(
    platform: str, log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", platform)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert places.log() == tmp_path / log
    assert places.state() == tmp_path / "state" / "mlx-inspector"


@pytest.mark.wide(1)
@pytest.mark.parametrize(
    "argv",
    [
        ["sessions"],
        ["generate", "-m", "1", "-p", "hi", "--preset", "greedy"],
        ["export", "--to", "txt", "-o", "-"],
    ],
)
def test_commands_work_without_any_place_of_the_user(argv: list[str], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    environment = {**os.environ, "HOME": "/proc/none", "XDG_CONFIG_HOME": str(tmp_path / "file"),
                   "XDG_STATE_HOME": str(tmp_path / "file"), "XDG_CACHE_HOME": str(tmp_path / "file")}  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "inspector", *argv], capture_output=True, text=True, env=environment
    )
    assert (done.returncode, done.stderr.count("Traceback")) == (0, 0)
    assert done.stdout
