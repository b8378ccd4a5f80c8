"""A command inside the engine, with the event that ends it. Standard library alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from threading import Event

from engine.frozen import frozen
from engine.protocol import Command

Stopped = Callable[[], bool]
"""Polled by work that takes long: whether it should stop."""


def never() -> bool:
    """A `Stopped` for work that can't be cancelled."""
    return False


@frozen
class Task:
    """One command, queued or running."""

    command: Command
    cancel: Event = field(default_factory=Event, repr=False, compare=False)
    """Set to stop the command at its next chunk or step, as once the engine is about to end; a queued one then never
    begins. Its `is_set` is a `Stopped`."""
    session: int = 0
    """Which of the sessions in the engine's thread it is for."""
