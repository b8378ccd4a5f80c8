"""What the tests of the screen share: the application as a fixture, and places of their own.

No test reads or writes the presets or the sessions of the person who runs it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet

from engine.models_on_disk import models as model_places
from inspector import keys, places
from inspector.recordings import sessions
from tests.inspector.painting import paint_when_looked_at


def parse_once() -> None:
    """Have every application of this process find what another one parsed with the same colours.

    Each parses those of the program and of every widget that it mounts, with its theme's colours: a
    tenth of a second, the same in every test. The toolkit keeps what it parsed within one application.
    """
    parse, parsed = Stylesheet._parse_rules, dict[tuple[Any, ...], list[RuleSet]]()

    def found(sheet: Stylesheet, css: str, *where: Any, **how: Any) -> list[RuleSet]:
        key = (tuple(sheet._variables.items()), css, where, tuple(how.items()))
        if key not in parsed:
            parsed[key] = parse(sheet, css, *where, **how)
        return parsed[key]

    Stylesheet._parse_rules = found  # type: ignore[method-assign]


SECONDS = 600.0
"""After which a test is given up."""


def run_plainly(test: Coroutine[Any, Any, None]) -> None:
    """Run a test in a loop of asyncio's."""
    asyncio.run(asyncio.wait_for(test, SECONDS))


@dataclass(frozen=True)
class Opened:
    """The value of a fixture in whose place a test gets what is opened."""

    open: Callable[[], AbstractAsyncContextManager[Any]]
    run: Callable[[Coroutine[Any, Any, None]], object] = run_plainly
    """Runs the test."""


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine: what its fixtures open is open while it runs, in the loop that it needs."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    opened = {name: value for name, value in given.items() if isinstance(value, Opened)}

    async def body() -> None:
        async with AsyncExitStack() as stack:
            for name, value in opened.items():
                given[name] = await stack.enter_async_context(value.open())
            await pyfuncitem.obj(**given)

    next((value.run for value in opened.values()), run_plainly)(body())
    return True


def options(request: pytest.FixtureRequest, marker: str, *names: str) -> dict[str, Any]:
    """What a test wants of a fixture: by a marker, and by its own parameters and fixtures of some names.

    Args:
        request: Of the fixture.
        marker: Its keywords are options.
        names: Of parameters that are.
    """
    marked = request.node.get_closest_marker(marker)
    own = {name: request.getfixturevalue(name) for name in names if name in request.fixturenames}
    return {**own, **(marked.kwargs if marked is not None else {})}


parse_once()
paint_when_looked_at()


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

    wanted = options(request, "lesson", "listed", "size", "recorded", "present", "beat", "course")
    return Opened(partial(on_lesson, **{"listed": getattr(request.module, "LESSON", None), **wanted}))


@pytest.fixture(autouse=True)
def tab() -> None:
    """No tab is open: sentences name keys as they do without a screen, whatever test ran before."""
    keys.go_to("")


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
    monkeypatch.setattr(
        model_places, "_path", lambda text: Path(text.replace("~", str(tmp_path / "home"), 1))
    )
    return tmp_path / "hub"
