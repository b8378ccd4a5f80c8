"""An event loop without idle time: where nothing is left to do until a timer is due, it is that time at once.

The pilot waits in naps of 20 ms, several for each key, and the screen paints by timers. On this loop they follow each
other as they would in a terminal, in the same order, and only what is computed takes time. While another thread is at
work (a worker, a recording that is written) the clock is that of the machine: nothing is passed over.

The pilot also has each widget of the screen handle a message of its own, twice a key, to know that those before it were
handled. This loop knows by itself when nothing is left to handle: with a dialog of sixty widgets that was two thirds of
what a key cost.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar
from unittest.mock import patch

from textual.pilot import Pilot

Result = TypeVar("Result")
POOL = "asyncio_"
"""How the loop's own pool names its threads, which live on while they have nothing to do."""


class QuickLoop(asyncio.SelectorEventLoop):
    """Sets its clock forward instead of waiting."""

    def __init__(self) -> None:
        self._ahead = 0.0
        self._others = {*threading.enumerate()}
        self._given_away: set[asyncio.Future[Any]] = set()
        self._until_quiet: list[asyncio.Future[None]] = []
        super().__init__()

    def time(self) -> float:
        """The machine's clock, and what was not waited for."""
        return super().time() + self._ahead

    def run_in_executor(self, executor: Executor | None, func: Any, *args: Any) -> Any:
        """Have a thread of the pool do something, and know that it does."""
        future = super().run_in_executor(executor, func, *args)
        self._given_away.add(future)
        future.add_done_callback(self._given_away.discard)
        return future

    async def quiet(self) -> bool:
        """Wait until nothing is left to do at this time; returns whether no thread is at work that may bring more."""
        self._until_quiet.append(self.create_future())
        await self._until_quiet[-1]
        return self._alone

    @property
    def _alone(self) -> bool:
        """Whether no thread that began since is at work."""
        return not self._given_away and all(
            thread in self._others or thread.name.startswith(POOL) for thread in threading.enumerate()
        )

    def _run_once(self) -> None:
        if not self._ready and self._until_quiet:
            waiting, self._until_quiet = self._until_quiet, []
            for each in waiting:
                if not each.done():
                    each.set_result(None)
        elif not self._ready and self._scheduled and self._alone:
            self._ahead += max(0.0, self._scheduled[0].when() - self.time())
        super()._run_once()


_each_widget = Pilot._wait_for_screen


async def _settled(pilot: Pilot[Any], timeout: float = 30.0) -> bool:
    """Wait as the pilot does, for what the loop can't know: what a thread is about to bring."""
    loop = asyncio.get_running_loop()
    if isinstance(loop, QuickLoop) and await loop.quiet():
        return True
    return await _each_widget(pilot, timeout)


def run_quickly(main: Coroutine[Any, Any, Result]) -> Result:
    """Run something as `asyncio.run` does, on a loop without idle time that the toolkit's timers go by."""
    runner = asyncio.Runner(loop_factory=QuickLoop)
    clock = patch("textual._time.get_time", runner.get_loop().time)
    with runner, clock, patch.object(Pilot, "_wait_for_screen", _settled):
        return runner.run(main)
