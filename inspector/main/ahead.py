"""Work for idle moments: importing the modules that may be needed next."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from importlib import import_module

from inspector.main.tool import Tool

QUIET = 0.1
"""Seconds without anything to do before the first piece, so that steps in quick succession are not delayed."""
DIALOGS = "inspector.main.dialogs"


class IdleWork:
    """Does work piece by piece, between frames.

    Args:
        work: Does one piece of work for each value.
        clock: Returns seconds.
    """

    def __init__(self, work: Iterator[object], clock: Callable[[], float] = time.monotonic) -> None:
        self._work, self._clock = work, clock
        self._idle_since: float | None = None
        self.done = False
        """True if there is nothing left."""

    def tick(self, idle: bool) -> None:
        """Do one piece, if there was nothing else to do for a while; called with each frame until all is done.

        Args:
            idle: Whether neither the engine nor the screen has anything to do now.
        """
        if not idle:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = self._clock()
        elif self._clock() - self._idle_since >= QUIET:
            self.done = next(self._work, self) is self


def imports(modules: Iterable[str]) -> Iterator[None]:
    """Import modules one by one, if they haven't been."""
    for name in modules:
        if name not in sys.modules:
            _import(name)
            yield


def _import(name: str) -> None:
    """Import a module; ignore an error, which is reported when the thing itself is opened."""
    with suppress(ImportError, OSError):
        import_module(name)


def modules_of(tools: Iterable[Tool]) -> Iterator[str]:
    """The modules of all that can be opened: the dialogs of the main screen, and the tools' own."""
    from pkgutil import iter_modules  # not needed for the first screen

    _import(DIALOGS)
    path = getattr(sys.modules.get(DIALOGS), "__path__", ())
    yield from (f"{DIALOGS}.{found.name}" for found in iter_modules(path))
    for tool in tools:
        yield from tool.modules
