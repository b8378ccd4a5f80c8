"""Tests that are coroutines: what a fixture opens is open while they run, in the loop that it needs."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest

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


def run_opened(test: pytest.Function) -> bool | None:
    """Run a test that is a coroutine; None for any other."""
    if not inspect.iscoroutinefunction(test.obj):
        return None
    given = {name: test.funcargs[name] for name in test._fixtureinfo.argnames}
    opened = {name: value for name, value in given.items() if isinstance(value, Opened)}

    async def body() -> None:
        async with AsyncExitStack() as stack:
            for name, value in opened.items():
                given[name] = await stack.enter_async_context(value.open())
            await test.obj(**given)

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
