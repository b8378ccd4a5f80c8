"""A command inside the engine, with the event that ends it."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event

from msgspec import Struct, field

from engine.protocol import Command

Stopped = Callable[[], bool]
"""Polled by work that takes long: whether it should stop."""


def never() -> bool:
    """A `Stopped` for work that can't be cancelled."""
    return False


def own_event(cancel: Event) -> Event:
    """The event of this process, for work that it does alone: over ranks, a command's asks all of them."""
    own: Event = getattr(cancel, "own", cancel)
    return own


class Task(Struct, frozen=True):
    """One command, queued or running."""

    command: Command
    id: int = 0
    """Id that the command was sent with."""
    cancel: Event = field(default_factory=Event)
    """Set to stop the command at its next chunk or step, as once the engine is about to end; a queued one then never
    begins. Its `is_set` is a `Stopped`."""
    session: int = 0
    """Number of the session, among those in the engine's thread."""
