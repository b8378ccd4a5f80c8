"""What the tests of the screen share: the application as a fixture, and places of their own.

No test reads or writes the presets or the sessions of the person who runs it.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from engine.models_on_disk import places as model_places
from inspector import places
from inspector.recordings import sessions
from tests.inspector.opened import Opened, options, run_opened
from tests.inspector.painting import paint_when_looked_at
from tests.inspector.style_sheets import parse_once

parse_once()
paint_when_looked_at()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run tests that are coroutines."""
    return run_opened(pyfuncitem)


@pytest.fixture
def rig(request: pytest.FixtureRequest) -> Opened:
    """The application on a fake engine: `@pytest.mark.screen(size=..., save=...)` says how, or a parameter `size`."""
    from tests.inspector.quick_clock import run_quickly  # not for tests without a screen
    from tests.inspector.rig import on_screen

    return Opened(partial(on_screen, **options(request, "screen", "size")), run_quickly)


@pytest.fixture
def replay(request: pytest.FixtureRequest) -> Opened:
    """The application on the recording of the fixture `path`: `@pytest.mark.recorded(save=..., live=...)` says how."""
    from tests.inspector.quick_clock import run_quickly
    from tests.inspector.replays import on_recording

    wanted = options(request, "recorded", "size")
    return Opened(partial(on_recording, request.getfixturevalue("path"), **wanted), run_quickly)


@pytest.fixture
def learner(request: pytest.FixtureRequest) -> Opened:
    """A learner at the module's `LESSON`, begun as `@pytest.mark.lesson(...)`, or the test's own parameters, say."""
    from tests.inspector.lessons.playing import on_lesson

    wanted = options(request, "lesson", "listed", "size", "recorded", "present", "beat")
    return Opened(partial(on_lesson, **{"listed": getattr(request.module, "LESSON", None), **wanted}))


@pytest.fixture(autouse=True)
def config(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A configuration directory of its own for each test; it doesn't exist yet."""
    folder = tmp_path / "config"
    monkeypatch.setattr(places, "config", lambda: folder)
    return folder


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A directory of its own for the sessions of each test; it doesn't exist yet."""
    folder = tmp_path / "sessions"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))  # of programs that a test starts
    monkeypatch.setattr(sessions, "folder", lambda: folder)
    return folder


@pytest.fixture(autouse=True)
def models(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A home directory without models; returns the hub's cache, which doesn't exist yet."""
    for name in ("HUGGINGFACE_HUB_CACHE", "HF_HOME", model_places.VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(model_places, "_home", lambda environ: tmp_path / "home")
    return tmp_path / "hub"
