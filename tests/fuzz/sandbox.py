"""A place of its own for all that a driven program writes, and a fence around it: a random name may be any path."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
CHANGES = "os.remove os.rename os.link os.symlink os.mkdir os.rmdir os.truncate os.chmod os.chown"
TWO = ("os.rename", "os.link", "os.symlink")
"""Events of Python's own audit that change files; the paths come first in each, in these two of them."""
TERMINALS = ("/dev/null", "/dev/tty", "/dev/ptmx", "/dev/pts")


class _Fence:
    """Python never takes an audit hook off again: this one is there once a process, and asks where the fence is now."""

    inside: str | None = None
    hooked = False


def fence(folder: str | None) -> None:
    """Let this process change files below one folder alone; None for everywhere."""
    _Fence.inside = folder and os.path.realpath(folder)
    if not _Fence.hooked:
        _Fence.hooked = True
        sys.addaudithook(_check)


def _check(event: str, values: tuple[object, ...]) -> None:
    if _Fence.inside is None:
        return
    if event == "open":
        path, mode, flags = values
        if (
            any(letter in mode for letter in "wax+")
            if isinstance(mode, str)
            else bool(int(str(flags or 0)) & WRITES)
        ):
            _allow(path, writing=True)
    elif event in CHANGES.split():
        for path in values[: 2 if event in TWO else 1]:
            _allow(path)


def _allow(path: object, writing: bool = False) -> None:
    if not isinstance(path, str | bytes | os.PathLike):
        return  # a descriptor: what opened it was asked
    folder, name = os.path.split(os.path.abspath(os.fsdecode(path)))
    real = os.path.join(os.path.realpath(folder), name)
    harmless = "__pycache__" in real or (writing and real.startswith(TERMINALS))
    if not harmless and not real.startswith(f"{_Fence.inside}{os.sep}"):
        raise PermissionError(13, "Permission denied", os.fsdecode(path))


@contextmanager
def sandbox() -> Iterator[Path]:
    """A directory with a home in it; removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    try:
        for name in ("home", "work", "tmp", "site"):
            (folder / name).mkdir()
        start = f"from tests.fuzz.sandbox import fence\nfence({str(folder)!r})\n"
        (folder / "site" / "sitecustomize.py").write_text(start, encoding="utf-8")
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def environment(folder: Path) -> Mapping[str, str]:
    """Variables of a program that is to stay in a sandbox; started with these, it puts up the fence itself."""
    home = folder / "home"
    places = {f"XDG_{name}_HOME": str(home / name) for name in ("STATE", "CONFIG", "DATA", "CACHE")}
    return {
        **{
            name: value
            for name, value in os.environ.items()
            if not name.startswith(
                ("XDG_", "TEXTUAL", "HF_", "COLUMNS", "LINES")
            )  # those two fix the screen's size
        },
        **places,
        "HOME": str(home),
        "TMPDIR": str(folder / "tmp"),
        "HF_HUB_OFFLINE": "1",
        "TEXTUAL_ANIMATIONS": "none",
        "TERM": "xterm-256color",
        "COLORTERM": "truecolor",
        "PYTHONPATH": os.pathsep.join((str(folder / "site"), str(TOP))),
    }


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Have this process itself live in a sandbox for a while."""
    before, where, temporary = dict(os.environ), os.getcwd(), tempfile.tempdir
    os.environ.update(environment(folder))
    os.chdir(folder / "work")
    tempfile.tempdir = None
    fence(str(folder))
    try:
        yield
    finally:
        fence(None)
        os.environ.clear()
        os.environ.update(before)
        os.chdir(where)
        tempfile.tempdir = temporary


def crash_log(folder: Path) -> str:
    """What the program wrote down of its own faults since this was asked last; empty where there was none."""
    logs = sorted((folder / "home").rglob("*inspector.log"))
    told = "".join(path.read_text(encoding="utf-8") for path in logs)
    for path in logs:
        path.unlink()
    return told
