"""Measurements of a session without a worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from engine.model.load import Loaded
from engine.protocol import Command
from engine.session.context import Context
from engine.session.session import Session
from engine.task import Task, never


def measure(
    handler: Callable[[Context, Any, Task], Iterator[Any]],
    loaded: Loaded,
    session: Session,
    command: Command,
    stopped: Callable[[], bool] = never,
) -> Iterator[Any]:
    """The records of a command that measures."""
    context = Context(lambda record: None)
    context.loaded, context.opened = loaded, session
    return handler(context, command, Task(command, cancel=SimpleNamespace(is_set=stopped)))  # type: ignore[arg-type]
