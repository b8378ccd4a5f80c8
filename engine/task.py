"""A command inside the engine, with the event that cancels it."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event

from msgspec import Struct, field

from engine.errors import Cancelled
from engine.protocol import Command

Stopped = Callable[[], bool]
"""Callback polled by long work; returns True if it should stop."""


def never() -> bool:
    """A `Stopped` for work that can't be cancelled."""
    return False


def poll(stopped: Stopped) -> None:
    """Raise `Cancelled` if work should stop."""
    if stopped():
        raise Cancelled


def own_event(cancel: Event) -> Event:
    """The event of this process, for work that no other rank does: over ranks, polling a command's event asks all
    ranks."""
    own: Event = getattr(cancel, "own", cancel)
    return own


class Task(Struct, frozen=True):
    """One command, queued or running."""

    command: Command
    id: int = 0
    """Id that the command was sent with."""
    cancel: Event = field(default_factory=Event)
    """Set to stop the command at its next chunk or step, or before it begins. Its `is_set` is a `Stopped`. It is also
    set when the engine closes."""
    session: int = 0
    """Number of the session in the engine's thread that runs the command."""
