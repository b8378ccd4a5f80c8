"""A command inside the engine, with the event that cancels it. Standard library alone."""

from __future__ import annotations

from dataclasses import field
from threading import Event

from engine.frozen import frozen
from engine.protocol import Command


@frozen
class Task:
    """One command, queued or running."""

    command: Command
    cancel: Event = field(default_factory=Event, repr=False, compare=False)
    """Set to stop the command at its next chunk or step; a queued one then never begins."""
