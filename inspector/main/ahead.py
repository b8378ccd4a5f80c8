"""Work for idle moments: modules are imported that may be needed next."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from importlib import import_module

from inspector.main.tool import Tool

QUIET = 0.1
"""Seconds without anything to do before the first import: a step that is asked for again and again comes first."""
DIALOGS = "inspector.main.dialogs"


class ImportsAhead:
    """Imports modules one by one, between frames.

    Args:
        packages: Names of packages, whose modules are imported.
        prepare: Called after the imports, one at a time: what else would be made at its first use.
        first: Called before the imports.
        clock: Seconds.
    """

    def __init__(
        self,
        packages: Iterable[str],
        prepare: Sequence[Callable[[], object]] = (),
        first: Sequence[Callable[[], object]] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._packages, self._modules = deque(packages), deque[str]()
        self._first, self._prepare, self._clock = deque(first), deque(prepare), clock
        self._idle_since: float | None = None
        self.done = not (self._first or self._packages or self._prepare)
        """True if there is nothing left."""

    def tick(self, idle: bool) -> None:
        """Do one thing, if there was nothing else to do for a while; called with each frame until all is done.

        Args:
            idle: Whether neither the engine nor the screen has anything to do now.
        """
        if not idle:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = self._clock()
        elif self._clock() - self._idle_since >= QUIET:
            self._next()
            self.done = not (self._first or self._packages or self._modules or self._prepare)

    def _next(self) -> None:
        if self._first:
            self._first.popleft()()
            return
        while self._modules or self._packages:
            if not self._modules:
                self._modules += _modules_of(self._packages.popleft())
            elif (name := self._modules.popleft()) not in sys.modules:
                _import(name)
                return
        if self._prepare:
            self._prepare.popleft()()


def _import(name: str) -> None:
    """Import a module, unless no file can be opened now: opening the thing itself tells it."""
    with suppress(ImportError, OSError):
        import_module(name)


def packages_of(tools: Iterable[Tool]) -> Iterable[str]:
    """The packages of all that can be opened: the dialogs of the main screen, and the tools' own."""
    return DIALOGS, *(tool.make.__module__.rpartition(".")[0] for tool in tools)


def _modules_of(package: str) -> Iterable[str]:
    """The modules of a package, those of packages within it left out."""
    from pkgutil import iter_modules  # the first screen needs nothing of it

    _import(package)
    path = getattr(sys.modules.get(package), "__path__", ())
    return [f"{package}.{found.name}" for found in iter_modules(path) if not found.ispkg]
