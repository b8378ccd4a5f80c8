"""What a person may open next is imported while nobody waits."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from inspector.main.ahead import QUIET, IdleWork, imports, modules_of
from inspector.views import TOOLS
from inspector.widgets.dialog import STYLES
from tests.inspector.rig import Rig, run


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A package with two modules."""
    folder = tmp_path / "ahead_package"
    folder.mkdir()
    for name in ("__init__", "first", "second"):
        (folder / f"{name}.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    yield folder.name
    for name in [name for name in sys.modules if name.startswith(folder.name)]:
        del sys.modules[name]


def modules_in(package: str) -> list[str]:
    return [f"{package}.first", f"{package}.second"]


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_one_module_at_a_time_and_only_after_a_while_without_work(package: str) -> None:
    clock, called = Clock(), []

    def work() -> Iterator[object]:
        yield from imports(modules_in(package))
        yield called.append("a")
        yield called.append("b")

    ahead = IdleWork(work(), clock)

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
    assert called == ["a", "b"]
    tick(True, 9.0)
    assert ahead.done
    assert called == ["a", "b"]


@pytest.mark.parametrize("error", ["ImportError", "OSError(24, 'Too many open files')"])
def test_what_cannot_be_imported_now_is_left(package: str, error: str) -> None:
    folder = next(Path(each, package) for each in sys.path if Path(each, package).is_dir())
    (folder / "first.py").write_text(f"raise {error}")
    clock = Clock()
    ahead = IdleWork(imports(modules_in(package)), clock)
    while not ahead.done:
        clock.now += QUIET
        ahead.tick(True)
    assert {f"{package}.first", f"{package}.second"} & set(sys.modules) == {f"{package}.second"}


def test_the_modules_are_those_of_dialogs_and_tools() -> None:
    at_start = {tool.make.__module__ for tool in TOOLS if not isinstance(tool.make, str)}
    modules = set(modules_of(TOOLS)) | at_start
    root = Path(__file__).resolve().parents[3]
    for folder in ("inspector/main/dialogs", "inspector/views"):
        names = {
            ".".join(each.relative_to(root).with_suffix("").parts)
            for each in root.glob(f"{folder}/[a-z]*.py")
        }
        assert names <= modules, names - modules


def test_a_session_that_rests_imports_all_that_can_be_opened() -> None:
    async def test(rig: Rig) -> None:
        await rig.ready()
        await rig.until(lambda: rig.app._ahead.done)

    run(test)
    assert set(modules_of(TOOLS)) <= set(sys.modules)


SCREENS = """
import sys
from engine.settings import LoadSettings, Settings
from inspector.app import InspectorApp
InspectorApp(LoadSettings(), Settings()).get_default_screen()
print(*sorted(sys.modules))
"""
LATER = {
    "textual.widgets._text_area", "textual.document", "engine.recording.decode", "inspector.session.player",
    "inspector.session.replay_backend", "engine.logits.recorded", "gzip", "pkgutil", "sysconfig",
}  # fmt: skip
"""What only fields, files that are read, and a replay need."""


def test_the_application_is_imported_without_what_the_first_screen_does_not_show() -> None:
    """Views and dialogs are a third of its modules, and none is on the first screen."""
    done = subprocess.run([sys.executable, "-c", SCREENS], capture_output=True, text=True, check=True)
    every = done.stdout.split()
    opened = {each.opens.partition(":")[0] for tool in TOOLS for each in tool.actions if each.opens}
    assert opened.isdisjoint(every)
    assert LATER.isdisjoint(every)


async def test_the_styles_of_dialogs_come_before_the_imports(rig: Rig) -> None:
    next(rig.app._work_ahead(TOOLS))
    assert rig.app.stylesheet.has_source(STYLES)
