"""What a person may open next is imported while nobody waits."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from inspector.main.ahead import QUIET, ImportsAhead, packages_of
from inspector.tools.registry import TOOLS
from tests.inspector.rig import Rig, run


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A package with two modules and another package."""
    folder = tmp_path / "ahead_package"
    folder.mkdir()
    for name in ("__init__", "first", "second"):
        (folder / f"{name}.py").touch()
    (folder / "within").mkdir()
    (folder / "within" / "__init__.py").write_text("raise RuntimeError")
    monkeypatch.syspath_prepend(tmp_path)
    yield folder.name
    for name in [name for name in sys.modules if name.startswith(folder.name)]:
        del sys.modules[name]


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_one_module_at_a_time_and_only_after_a_while_without_work(package: str) -> None:
    clock, called = Clock(), []
    ahead = ImportsAhead([package], [lambda: called.append("a"), lambda: called.append("b")], clock=clock)

    def come() -> set[str]:
        return {name for name in sys.modules if name.startswith(f"{package}.")}

    def tick(idle: bool, after: float) -> None:
        clock.now += after
        ahead.tick(idle)

    for idle in (False, True, False, True, False, True):
        tick(idle, 9.0)
        assert come() == set()
    tick(True, QUIET)
    assert come() == {f"{package}.first"}
    tick(False, 1.0)
    tick(True, 1.0)
    assert len(come()) == 1
    tick(True, QUIET)
    assert come() == {f"{package}.first", f"{package}.second"}
    assert called == []
    tick(True, 0.0)
    assert (called, ahead.done) == (["a"], False)
    tick(True, 0.0)
    assert (called, ahead.done) == (["a", "b"], True)
    tick(True, 9.0)
    assert called == ["a", "b"]


@pytest.mark.parametrize("error", ["ImportError", "OSError(24, 'Too many open files')"])
def test_what_cannot_be_imported_now_is_left(package: str, error: str) -> None:
    folder = next(Path(each, package) for each in sys.path if Path(each, package).is_dir())
    (folder / "first.py").write_text(f"raise {error}")
    clock = Clock()
    ahead = ImportsAhead([package], clock=clock)
    while not ahead.done:
        clock.now += QUIET
        ahead.tick(True)
    assert {f"{package}.first", f"{package}.second"} & set(sys.modules) == {f"{package}.second"}


def test_the_packages_are_those_of_the_tools() -> None:
    packages = list(packages_of(TOOLS))
    folder = Path(__file__, "../../../../inspector/tools").resolve()
    assert {name.rpartition(".")[2] for name in packages} == {
        "dialogs", *(each.parent.name for each in folder.glob("*/tool.py"))
    }  # fmt: skip


def test_a_session_that_rests_imports_all_that_can_be_opened() -> None:
    async def test(rig: Rig) -> None:
        await rig.ready()
        await rig.until(lambda: rig.app._ahead.done)

    run(test)
    for package in packages_of(TOOLS):
        names = Path(*package.split(".")).glob("[a-z]*.py")
        assert {f"{package}.{name.stem}" for name in names} <= set(sys.modules)


SCREENS = """
import sys
import inspector.app
print(*sorted(sys.modules))
"""
LATER = {
    "textual.widgets._text_area", "textual.document", "engine.recording.decode", "inspector.session.player",
    "inspector.session.replay_backend", "engine.logits.recorded", "gzip", "pkgutil", "sysconfig",
}  # fmt: skip
"""What only fields, files that are read, and a replay need."""


def test_the_application_is_imported_without_what_the_first_screen_does_not_show() -> None:
    """Screens and dialogs of tools are a third of its modules, and nobody sees them at the start."""
    done = subprocess.run([sys.executable, "-c", SCREENS], capture_output=True, text=True, check=True)
    every = done.stdout.split()
    known = [name for name in every if name.startswith("inspector.tools.")]
    assert "inspector.tools.registry" in known
    assert LATER.isdisjoint(every)
    assert [name for name in known if name.endswith(("screen", "dialog", "dialogs", "page", "html"))] == []


def test_what_is_first_comes_before_the_imports(package: str) -> None:
    called: list[str] = []
    clock = Clock()
    ahead = ImportsAhead([package], [lambda: called.append("last")], [lambda: called.append("first")], clock)
    while not ahead.done:
        ahead.tick(True)
        clock.now += 1
        if not called:
            assert not any(name.startswith(package) for name in sys.modules)
    assert called == ["first", "last"]
