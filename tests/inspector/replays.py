"""A small recording, and the application on one; the engine that would be loaded is a fake."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from engine.protocol import Loading, Marked
from engine.recording import Entry, save_as
from engine.settings import LoadSettings, Settings
from inspector.app import InspectorApp
from inspector.session.playback import Opening
from tests.inspector.fakes import Session
from tests.inspector.quick_clock import run_quickly
from tests.inspector.rig import FakeEngine, Rig

USED = Settings(temp=0.7, seed=9)


def trace(
    path: Path, fingerprint: str = "ab", caption: str = "Look [here]\x1b", seconds: float = 0.1
) -> Session:
    """Six steps, a fork at the third with two more, a caption, settings; so many seconds between two records."""
    session = Session()
    session.load(fingerprint=fingerprint)
    session.records.append(USED)  # type: ignore[arg-type]
    session.open()
    steps = session.steps(6)
    other = next(each.id for each in steps[2].choice.candidates if each.id != steps[2].id)
    session.choose(steps[2].parent, other)
    session.steps(2)
    session.records.append(Marked(steps[1].node, caption=caption))
    entries = [Entry(LoadSettings("pocket"), 0.0)]
    entries += [
        Entry(record, number * seconds)
        for number, record in enumerate(session.records)
        if not isinstance(record, Loading)
    ]
    save_as(path, entries, "test 1")
    return session


@asynccontextmanager
async def on_recording(
    path: Path,
    size: tuple[int, int] = (120, 40),
    save: Path | None = None,
    settled: bool = True,
    **opening: Any,
) -> AsyncIterator[Rig]:
    """The application on a recording."""
    engine = FakeEngine()
    app = InspectorApp(LoadSettings(), Settings(), engine=engine, save=save, trace=Opening(path, **opening))
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        while settled and (app.playback.player is None or not app.playback.player.settled):
            await pilot.pause(0.02)
        await pilot.pause()
        yield Rig(pilot, engine, Session())


def replayed(test: Callable[[Rig], Awaitable[None]], path: Path, **options: Any) -> InspectorApp:
    """Run a test on a recording; returns the application ended."""

    async def body() -> InspectorApp:
        async with on_recording(path, **options) as rig:
            await test(rig)
        return rig.app

    return run_quickly(body())
