"""The tests pass on a Mac, too: what only Linux has is asked for in one place, or not at all."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests import system

ROOT = Path(__file__).parent
LINUX = re.compile(r"[\"{]/proc\b(?!/none)|ru_maxrss|/dev/shm|RLIMIT_AS|sched_getaffinity")
"""Places that only Linux has, and figures that have another unit there."""
GUARDED = {
    "benchmarks/memory.py": "measured on Linux alone",
    "mac/sitecustomize.py": "takes it away",
    "system.py": "counts in bytes on both",
    "conftest.py": "only where there is such a function",
    "broken_models/places.py": "a link to nowhere is as broken",
    "broken_models/weights.py": "a link to nowhere is as broken",
    "engine/models_on_disk/test_places.py": "a place that is none is as good",
    "engine/ranks/test_commanded.py": "its test is left out elsewhere, with that reason",
    "engine/ranks/programs.py": "its test is left out elsewhere, with that reason",
    "engine/test_files.py": "its test is left out elsewhere, with that reason",
    "fuzz/terminal.py": "only where there is such a file",
    "terminal_screen.py": "the program alone where there is no such file",
    "inspector/cli/test_broken_models.py": "a limit that is set on Linux alone",
    "inspector/cli/test_generate.py": "the case is left out elsewhere, with that reason",
    "inspector/cli/test_paths.py": "its test is left out elsewhere, with that reason",
}
"""By file: why what it asks of Linux doesn't fail on a Mac."""


def test_no_test_asks_linux_without_a_word_on_other_systems() -> None:
    found = {
        str(path.relative_to(ROOT))
        for path in ROOT.rglob("*.py")
        if path.name != Path(__file__).name and LINUX.search(path.read_text(encoding="utf-8"))
    }
    assert found == set(GUARDED)


@pytest.mark.parametrize(("platform", "unit"), [("linux", 1024), ("darwin", 1)])
def test_memory_is_told_in_bytes(platform: str, unit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    here = resource.getrusage(resource.RUSAGE_SELF)
    monkeypatch.setattr("sys.platform", platform)
    assert system.bytes_of(here) == here.ru_maxrss * unit


def test_processes_are_found_without_proc() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert child.pid in system.children(os.getpid())
        assert system.alive(child.pid)
        child.kill()
    assert not system.alive(child.pid)
    assert child.pid not in system.children(os.getpid())


def test_what_is_opened_is_counted() -> None:
    before = system.descriptors()
    with open(__file__, encoding="utf-8"):
        assert system.descriptors() == before + 1
    assert system.descriptors() == before


def test_a_socket_has_room_in_a_short_directory() -> None:
    directory = system.short_directory()
    try:
        assert len(str(directory / "mlx-inspector" / "engine" / "engine.sock")) < 70
    finally:
        directory.rmdir()


def test_no_two_files_have_names_that_differ_by_case_alone() -> None:
    """A Mac's file system takes them for one."""
    files = [
        path.relative_to(ROOT.parent)
        for name in ("engine", "inspector", "tests")
        for path in ROOT.parent.glob(f"{name}/**/*")
    ]
    assert len({str(path).casefold() for path in files}) == len(files)
