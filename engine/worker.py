"""Dispatches commands from a table that each capability of the engine fills; runs in the engine's thread."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Collection, Sequence
from pkgutil import resolve_name
from typing import Any

from engine import protocol
from engine.context import NO_MODEL, Capability, EngineContext, Handler, collect_all
from engine.errors import FAULT, Cancelled, EngineError, RankError, StepError, first_line
from engine.model.forward import Compute
from engine.model.load import Divider, Loaded
from engine.protocol import Command, Intervention, Prefill, Received
from engine.ranks.ring import RING
from engine.settings import LoadSettings
from engine.task import Stopped, Task

CAPABILITIES = (
    "engine.session.handlers:SessionCommands",
    "engine.decoding.handlers:DecodingCommands",
    "engine.inspection.handlers:InspectionCommands",
    "engine.inside.handlers:InsideCommands",
    "engine.inside.patching:PatchingCommands",
    "engine.lockstep.handlers:LockstepCommands",
    "engine.decoding.batched.handlers:BatchCommands",
    "engine.decoding.speculative.handlers:SpeculationCommands",
    "engine.measuring.handlers:MeasuringCommands",
    "engine.ranks.handlers:RanksCommands",
    "engine.training.handlers:TrainingCommands",
)
"""The classes that provide handlers, of which each worker makes one instance: the first with the worker, each other
when a command comes that those before it don't handle. The first distribution would wait 40 ms for all their imports.
"""

OVER_RANKS = "This needs a model that one process computes; here several do."


class Worker:
    """Calls the handler of each command's class; every failure becomes a record.

    Args:
        emit: Receives every record, with the id of its command.
        aside: Takes the next task out of the queue if its command is an aside, else returns None.
        waiting: Whether the queue has a task.
        shared: A model that another session of the thread has loaded with these settings, if one has.
        ending: Is told the id of each command before its `Ended` is emitted.
    """

    def __init__(
        self,
        emit: Callable[[Received], None],
        aside: Callable[[], Task | None] = lambda: None,
        waiting: Stopped = lambda: False,
        shared: Callable[[LoadSettings], Loaded | None] = lambda settings: None,
        ending: Callable[[int], object] = lambda id: None,
    ) -> None:
        self._aside, self._ending = aside, ending
        self._context = EngineContext(emit, self._answer_asides, waiting)
        self._context.shared = shared
        self._context.change = _changed
        self._context.spread = self._spread
        self._handlers: dict[type[Command], Handler] = {}
        self._unmade = list(CAPABILITIES)
        self._make_next()

    @property
    def handled(self) -> Collection[type[Command]]:
        """The classes of the commands that have a handler."""
        while self._unmade:
            self._make_next()
        return self._handlers.keys()

    def _make_next(self) -> None:
        """Make the next capability. While its import fails, none after it is made; commands for them try again."""
        capability: Capability = resolve_name(self._unmade[0])(self._context)
        handlers = capability.handlers()
        for kind in handlers:
            assert kind not in self._handlers, f"two handlers for {kind.__name__}"
        self._handlers |= handlers
        self._context.capabilities.append(capability)
        del self._unmade[0]

    def _handler(self, kind: type[Command]) -> Handler | None:
        while kind not in self._handlers and self._unmade:
            self._make_next()
        return self._handlers.get(kind)

    def _spread(self, settings: LoadSettings) -> Divider | None:
        """As `EngineContext.spread`, until the capability that has ranks is made and takes its place."""
        if not settings.divided:
            return None
        self._handler(protocol.MeasureRanks)
        return self._context.spread(settings)

    def carry_out(self, task: Task) -> None:
        """Execute a command; all its records, its `Failure`, if it fails, and its `Ended` carry its id."""
        context, command, cancelled = self._context, task.command, False
        before, context.request = context.request, task.id
        try:
            if task.cancel.is_set():
                raise Cancelled
            if (handler := self._handler(type(command))) is None:
                raise TypeError(f"no handler for {command!r}")
            if command.needs_model:
                if context.loaded is None:
                    raise StepError(*NO_MODEL)
                if context.loaded.divided and not command.over_ranks:
                    raise StepError(
                        OVER_RANKS, "Load the model in one process, without --ranks and --hostfile."
                    )
            handler(command, task)
        except Cancelled:
            cancelled = True
        except EngineError as error:
            lost = error.rank if isinstance(error, RankError) else None
            name = type(error).__name__
            context.emit(
                protocol.Failure(command.kind, error.message, error.hint, lost_rank=lost, error=name)
            )
        except BaseException as error:  # no bug, no model's own code and no panic in Rust may end the thread
            context.emit(unexpected(command, error))
        self._ending(task.id)
        context.emit(protocol.Ended(command.kind, cancelled))
        context.request = before

    def use_idle_time(self) -> bool:
        """Do a piece of what no command waits for, some 60 ms; returns whether there was any."""
        if self._context.opened is None or not self._context.opened.unread.rows:
            return False
        try:
            return self._context.read_prompt()
        except BaseException as error:  # what fails once would fail again, and here nothing ends
            if self._context.opened is not None:
                self._context.opened.unread.clear()
            self._context.emit(unexpected(Prefill("", False), error))
            return False

    @property
    def loaded(self) -> bool:
        """True while the session has a model."""
        return self._context.loaded is not None

    def holds(self, settings: LoadSettings) -> Loaded | None:
        """The session's model, if it was loaded with these settings; one over ranks, of which a process has one set,
        also for others over ranks."""
        loaded = self._context.loaded
        over_ranks = loaded is not None and loaded.divided and settings.divided
        return loaded if over_ranks or self._context.asked == settings else None

    def leave(self, last: bool) -> None:
        """Let everything of the session go. What refers to each other is taken apart: the collector looks at nothing
        that was frozen.

        Args:
            last: Whether no other session has a model: then what is left of this one's is collected.
        """
        context = self._context
        context.forget(model=True)
        context.loaded = context.opened = None
        context.capabilities.clear()
        self._unmade.clear()
        self._handlers.clear()
        if last:
            collect_all()

    def close(self) -> None:
        """End what the capabilities have outside this process; called once, at the end."""
        RING.close()

    def _answer_asides(self) -> None:
        while (task := self._aside()) is not None:
            self.carry_out(task)


def _changed(model: Any, interventions: Sequence[Intervention]) -> Compute:
    """As `engine.inside.interventions.changed`, which is imported for a session that has interventions."""
    from engine.inside.interventions import changed

    return changed(model, interventions)


def unexpected(command: Command, error: BaseException) -> protocol.Failure:
    """The failure of a command through a bug, with its traceback."""
    return protocol.Failure(
        command.kind,
        f"{command.kind} failed: {type(error).__name__}: {first_line(error, nothing='no message')}.",
        FAULT,
        expected=False,
        trace="".join(traceback.format_exception(error)),
    )
