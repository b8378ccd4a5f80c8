"""The screen on an engine elsewhere: joined, cut off, given up, lost, and live again with a fresh one."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from engine.protocol import Choose, Step, TakeStep
from engine.remote import client
from engine.remote.client import RemoteEngine
from engine.remote.link import Link, ProcessLink
from engine.settings import LoadSettings, Settings
from inspector.app import InspectorApp
from inspector.config.preferences import Preferences
from inspector.keys import with_keys
from inspector.session.replay_backend import REFUSED
from inspector.state.timeline import Phase
from tests.engine.remote.far import PROGRAM, Host, hosted, settled
from tests.inspector.fakes import Session
from tests.inspector.quick_clock import run_quickly
from tests.inspector.rig import FakeEngine, Rig
from tests.system import alive, children

SAMPLED = Settings(temp=0.8, seed=3, max_tokens=12, min_tokens=12)


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with hosted() as host:
        yield host


def far_engine(link: Link, joins: bool = False) -> RemoteEngine:
    engine = RemoteEngine(lambda record: None, link, PROGRAM)
    engine.joins = joins
    engine.connect()
    return engine


def on_screen(
    engine: RemoteEngine,
    test: Callable[[Rig], Awaitable[None]],
    save: Path | None = None,
    load: LoadSettings | None = None,
) -> InspectorApp:
    """Run a test in an application on an engine elsewhere."""
    app = InspectorApp(
        load or LoadSettings(),
        SAMPLED,
        "Once upon a time",
        False,
        engine=engine,
        save=save,
        begins=Preferences(),
    )

    async def body() -> None:
        async with app.run_test(size=(120, 40)) as pilot:
            await test(Rig(pilot, FakeEngine(), Session()))

    run_quickly(body())
    assert app.closed_in_time
    return app


def tree(rig: Rig) -> dict[int, tuple[int, int]]:
    return {
        item.node: (item.parent, item.id)
        for item in rig.timeline.tree.nodes.values()
        if isinstance(item, Step)
    }


async def idle(rig: Rig) -> None:
    await rig.until(lambda: rig.timeline.phase is Phase.READY and not rig.app.controller.client.outstanding)


async def walked(rig: Rig, disturb: Callable[[Rig], Awaitable[None]] | None = None) -> None:
    """Step, branch, run to the end; cut off in the run, if at all."""
    await idle(rig)
    await rig.press("space", "space")
    await rig.until(lambda: len(rig.timeline.steps) == 2)
    await idle(rig)
    await rig.press("down", "enter")
    await rig.until(lambda: len(rig.timeline.steps) == 3)
    await idle(rig)
    await rig.press("backspace")
    await rig.until(lambda: len(rig.timeline.steps) == 2)
    await idle(rig)
    await rig.press("r")
    if disturb is not None:
        await rig.until(lambda: len(rig.timeline.steps) > 3)
        await disturb(rig)
        await idle(rig)
        if len(rig.timeline.steps) < SAMPLED.max_tokens:
            await rig.press("r")
    await rig.until(lambda: rig.timeline.finished)
    await idle(rig)


def test_a_session_over_a_socket_is_cut_off_comes_back_and_is_joined(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "WAITS", (600.0,))  # it comes back by the key alone
    trees = {}

    async def plain(rig: Rig) -> None:
        await walked(rig)
        trees["plain"] = tree(rig)

    async def cut_off(rig: Rig) -> None:
        await rig.do("connection")
        await rig.until(lambda: "round trip" in rig.screen_text() or "connection" in rig.screen_text())
        await rig.press("escape")
        await walked(rig, lose_and_try_again)
        trees["cut off"] = tree(rig)

    async def joined(rig: Rig) -> None:
        await idle(rig)
        trees["joined"] = tree(rig)
        assert rig.app.controller.setup.settings == SAMPLED
        assert rig.timeline.facts is not None
        await rig.do("open")
        await rig.until(lambda: "opens it: type pocket, a hub id" in rig.screen_text())
        await rig.press("escape", "backspace")
        await rig.until(lambda: len(rig.timeline.steps) == SAMPLED.max_tokens - 1)

    on_screen(far_engine(host.link()), plain)
    on_screen(far_engine(host.link()), cut_off)
    engine = far_engine(host.link(), joins=True)
    assert engine.has_session
    on_screen(engine, joined)
    assert trees["plain"] == trees["cut off"] == trees["joined"]
    assert len(trees["plain"]) == SAMPLED.max_tokens + 1


async def lose_and_try_again(rig: Rig) -> None:
    engine = rig.app.engine
    assert isinstance(engine, RemoteEngine)
    engine._lines.hang_up()
    await rig.until(lambda: "● AWAY" in rig.screen_text())
    assert rig.status.startswith("The engine is away: trying again")
    await rig.press("space", "enter")  # mean nothing now, and say so
    assert rig.status.startswith("The engine is away")
    assert not rig.app.controller.client.of(TakeStep, Choose)
    await rig.do("connection")
    await rig.until(lambda: "attempts" in rig.screen_text())
    await rig.press("t")
    await rig.until(lambda: "● AWAY" not in rig.screen_text())


def test_an_engine_that_is_given_up_leaves_a_replay(host: Host) -> None:
    async def given_up(rig: Rig) -> None:
        await walked(rig)
        before, address = tree(rig), host.address
        engine = rig.app.engine
        assert isinstance(engine, RemoteEngine)
        os.rename(address.path, f"{address.path}.away")  # nothing listens there for now
        try:
            engine._lines.hang_up()  # type: ignore[union-attr]
            await rig.until(lambda: "● AWAY" in rig.screen_text())
            await rig.do("connection")
            await rig.press("x")
            await rig.until(lambda: rig.timeline.recorded and tree(rig) == before)
        finally:
            os.rename(f"{address.path}.away", address.path)
        await rig.press("p")
        assert rig.status.startswith(with_keys(REFUSED))

    app = on_screen(far_engine(host.link()), given_up)  # kept in memory alone: the replay is of that
    assert app.saved is None


@pytest.mark.slow
def test_an_engine_whose_process_dies_leaves_a_replay_and_a_fresh_one_goes_on(tmp_path: Path) -> None:
    link = ProcessLink(PROGRAM)
    processes = []

    async def killed(rig: Rig) -> None:
        await walked(rig)
        before = tree(rig)
        processes.append(link._process)
        os.kill(link._process.pid, signal.SIGKILL)  # type: ignore[union-attr]
        await rig.until(lambda: rig.timeline.recorded and tree(rig) == before)
        told = [each.message for each in rig.app._notifications]
        assert told == [
            "The engine's process has ended: it was ended by SIGKILL. "
            "The session is shown as a replay: G continues live with a new engine."
        ]
        await rig.until(lambda: rig.app.playback.player is not None and rig.app.playback.player.settled)
        await rig.press("G")
        await rig.until(lambda: not rig.timeline.recorded)
        assert rig.status.startswith("Live.")
        processes.append(link._process)
        await rig.press("space")
        await rig.until(lambda: len(rig.timeline.steps) == SAMPLED.max_tokens + 1)
        assert before.items() < tree(rig).items()

    engine = RemoteEngine(lambda record: None, link, PROGRAM)
    app = on_screen(engine, killed, save=tmp_path)
    assert [each.poll() is not None for each in processes] == [True, True]
    assert [each.name for each in tmp_path.iterdir()] == [app.saved.name]  # type: ignore[union-attr]  # it went on in its file


@pytest.mark.slow
def test_a_rank_that_is_killed_leaves_a_replay_and_fresh_ranks_go_on(tmp_path: Path) -> None:
    link, seen = ProcessLink(PROGRAM), []

    async def killed(rig: Rig) -> None:
        await walked(rig)
        before, first = tree(rig), link._process
        [rank] = children(first.pid)
        os.kill(rank, signal.SIGKILL)
        await rig.press("space")
        await rig.until(lambda: rig.timeline.recorded and tree(rig) == before)
        [told] = [each.message for each in rig.app._notifications]
        assert told.startswith("Rank 1 was lost: it was ended by SIGKILL. The session is shown as a replay")
        await rig.until(lambda: rig.app.playback.player is not None and rig.app.playback.player.settled)
        await rig.press("G")
        await rig.until(lambda: not rig.timeline.recorded)
        assert "to the last bit" in rig.status
        second = link._process
        assert rig.app.controller.setup.load.ranks == 2
        seen.extend([first.pid, rank, second.pid, *children(second.pid)])

    app = on_screen(
        RemoteEngine(lambda record: None, link, PROGRAM), killed, save=tmp_path, load=LoadSettings(ranks=2)
    )
    assert app.closed_in_time
    assert len(seen) == 4
    settled(lambda: not any(map(alive, seen)))
