"""The screen on a model over ranks: its process or a rank is lost, and a new one continues the session."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from engine.protocol import Prefill, Step
from engine.settings import LoadSettings, Settings
from inspector.app import InspectorApp
from inspector.config.preferences import Preferences
from inspector.keys import with_keys
from inspector.session.transport import REFUSED
from inspector.state.measured import Measured
from inspector.state.timeline import Phase
from tests.engine.test_child import settled
from tests.inspector.fakes import Session
from tests.inspector.quick_clock import run_quickly
from tests.inspector.rig import FakeEngine, Rig
from tests.system import alive

SAMPLED = Settings(temp=0.8, seed=3, max_tokens=12, min_tokens=12)


def on_screen(test: Callable[[Rig], Awaitable[None]], save: Path | None = None) -> InspectorApp:
    """Run a test in an application with a model over two ranks."""
    app = InspectorApp(
        LoadSettings(ranks=2), SAMPLED, Prefill("Once upon a time", False), save=save, begins=Preferences()
    )

    async def body() -> None:
        async with app.run_test(size=(120, 40)) as pilot:
            await test(Rig(pilot, FakeEngine(), Session()))

    run_quickly(body())
    assert app.closed_in_time
    return app


def ranks_of(rig: Rig) -> list[int]:
    """The processes of the ranks."""
    loaded = rig.timeline.of(Measured).loaded
    assert loaded is not None
    return [rank.pid for rank in loaded.ranks]


def tree(rig: Rig) -> dict[int, tuple[int, int]]:
    return {
        item.node: (item.parent, item.id)
        for item in rig.timeline.tree.nodes.values()
        if isinstance(item, Step)
    }


async def idle(rig: Rig) -> None:
    await rig.until(lambda: rig.timeline.phase is Phase.READY and not rig.app.controller.client.outstanding)


async def walked(rig: Rig) -> None:
    """Step, branch, run to the end."""
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
    await rig.until(lambda: rig.timeline.finished)
    await idle(rig)


async def live_again(rig: Rig) -> None:
    """Continue live once the replay is settled."""
    await rig.until(lambda: rig.app.playback.player is not None and rig.app.playback.player.settled)
    await rig.press("p")
    assert rig.status.startswith(with_keys(REFUSED))
    await rig.press("G")
    await rig.until(lambda: not rig.timeline.recorded)
    assert "to the last bit" in rig.status


@pytest.mark.slow
def test_an_engine_whose_process_dies_leaves_a_replay_and_a_new_one_continues(tmp_path: Path) -> None:
    seen = []

    async def killed(rig: Rig) -> None:
        await walked(rig)
        before, first = tree(rig), ranks_of(rig)
        os.kill(first[0], signal.SIGKILL)
        await rig.until(lambda: rig.timeline.recorded and tree(rig) == before)
        told = [each.message for each in rig.app._notifications]
        assert told == [
            "The engine's process has ended: it was ended by SIGKILL. "
            "The session is shown as a replay: G continues live with a new engine."
        ]
        await live_again(rig)
        seen.extend([*first, *ranks_of(rig)])
        await rig.press("space")
        await rig.until(lambda: len(rig.timeline.steps) == SAMPLED.max_tokens + 1)
        assert before.items() < tree(rig).items()

    app = on_screen(killed, save=tmp_path)
    assert len({*seen}) == 4
    settled(lambda: not any(map(alive, seen)))
    assert [each.name for each in tmp_path.iterdir()] == [app.saved.name]  # type: ignore[union-attr]  # the same file


def test_a_rank_that_is_killed_leaves_a_replay_and_new_ranks_continue(tmp_path: Path) -> None:
    seen = []

    async def killed(rig: Rig) -> None:
        await walked(rig)
        before, first = tree(rig), ranks_of(rig)
        os.kill(first[1], signal.SIGKILL)
        await rig.press("space")
        await rig.until(lambda: rig.timeline.recorded and tree(rig) == before)
        [told] = [each.message for each in rig.app._notifications]
        assert told.startswith("Rank 1 was lost: it was ended by SIGKILL. The session is shown as a replay")
        await live_again(rig)
        assert rig.app.controller.setup.load.ranks == 2
        seen.extend([*first, *ranks_of(rig)])

    on_screen(killed, save=tmp_path)
    assert len({*seen}) == 4
    settled(lambda: not any(map(alive, seen)))
