"""Executes commands: calls the function for a command's class, and emits its records and errors as records."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any

from engine import protocol
from engine.errors import FAULT, Cancelled, EngineError, RankError, StepError, first_line
from engine.model.load import Loaded
from engine.protocol import Command, Inside, Measure, Prefill, PromptReadings, Received, Record
from engine.session.context import NO_MODEL, Context, free_garbage
from engine.settings import LoadSettings
from engine.task import Stopped, Task, never

HANDLERS: Mapping[str, str] = {
    "engine.session.handlers":
        "Load Configure Prefill AddTurn GoOnPrefill TakeStep Choose Take MoveTo Reroll Run Recall Verify Restore "
        "Explain WhatIf FindTokens ReadGrammar ReadLogits",
    "engine.session.texts": "Tokenize PreviewPrompt CutText Insert CheckToolCall TakeApart",
    "engine.decoding.beam": "SearchBeams GoOnBeams",
    "engine.decoding.lookahead": "LookAhead",
    "engine.decoding.repeat": "RepeatReply",
    "engine.decoding.batch": "StartBatch AdvanceBatch AddLanes RemoveLane CompareBatch DrawMany",
    "engine.decoding.speculation": "LoadDraft TakeRound RunRounds VerifySpeculation",
    "engine.inside.attention": "ReadAttention ReadTriangle ScoreHeads",
    "engine.inside.gradients": "ReadGradients",
    "engine.inside.interventions": "Intervene HoldInterventions",
    "engine.inside.lens": "ReadLens Attribute",
    "engine.inside.modules": "ReadModules ReadExperts",
    "engine.inside.patching": "PatchActivations PatchPairs SweepHeads",
    "engine.inside.positions": "TryPosition",
    "engine.inside.scores": "ReadScore",
    "engine.inside.steering": "MakeDirection SweepStrengths",
    "engine.lockstep.second": "OpenLockstep CloseLockstep ReadLockstep ExplainSecond FollowSecond",
    "engine.lockstep.texts": "DiffText PartWays",
    "engine.measuring.caches": "Race CompareKV",
    "engine.measuring.profile": "Profile CaptureMetal",
    "engine.measuring.roofline": "MeasureRoofline ReadMachine",
    "engine.ranks.handlers": "MeasureRanks",
    "engine.training.learner": "BeginTraining ResumeTraining Train SaveCheckpoint",
}  # fmt: skip
"""Modules and the commands that they implement; a module is imported for the first of its commands. The function for
`TakeStep` is `take_step(context, command, task)`; the function for an `Inside` command, such as `ReadLens`, is
`read_lens(session, command, stopped)`. Each yields the records that answer the command."""
MODULES = {name: module for module, names in HANDLERS.items() for name in names.split()}
OVER_RANKS = "This needs a model that one process computes; here several do."

Handler = Callable[[Any, Any, Any], Iterable[Record]]


def handler_of(kind: type[Command]) -> Handler:
    """The function for a command's class.

    Raises:
        TypeError: There is none.
    """
    if kind.__name__ not in MODULES or getattr(protocol, kind.__name__, None) is not kind:
        raise TypeError(f"no handler for {kind.__name__}")
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).lower()
    handler: Handler = getattr(import_module(MODULES[kind.__name__]), name)
    return handler


class Worker:
    """Executes the commands of one session; every failure becomes a record.

    Args:
        emit: Receives every record, with the id of its command.
        interleaved: Removes and returns the next task of the queue if its command is interleavable; else returns None.
        waiting: True if the queue has a task.
        shared: Returns the model that another session of the thread has loaded with these settings, or None.
        ending: Receives the id of each command before its `Ended` is emitted.
    """

    def __init__(
        self,
        emit: Callable[[Received], None],
        interleaved: Callable[[], Task | None] = lambda: None,
        waiting: Stopped = never,
        shared: Callable[[LoadSettings], Loaded | None] = lambda settings: None,
        ending: Callable[[int], object] = lambda id: None,
    ) -> None:
        self._interleaved, self._ending = interleaved, ending
        self._context = Context(emit, waiting, shared)

    def carry_out(self, task: Task) -> None:
        """Execute a command; all its records, including a `Failure` and the `Ended`, carry its id."""
        context, command, cancelled = self._context, task.command, False
        before, context.request = context.request, task.id
        try:
            if task.cancel.is_set():
                raise Cancelled
            has_steps = not (command.interleavable or isinstance(command, Measure))
            for record in self._records(command, task):
                context.emit(record)
                if has_steps and not isinstance(record, PromptReadings):
                    while (interleaved := self._interleaved()) is not None:
                        self.carry_out(interleaved)
        except Cancelled:
            cancelled = True
        except EngineError as error:
            lost = error.rank if isinstance(error, RankError) else None
            why, name = (error.message, error.hint), type(error).__name__
            context.emit(protocol.Failure(command.kind, *why, lost_rank=lost, error=name))
        except BaseException as error:  # a bug, a model's own code or a panic in Rust must not end the thread
            context.emit(unexpected(command, error))
        self._ending(task.id)
        context.emit(protocol.Ended(command.kind, cancelled))
        context.request = before

    def _records(self, command: Command, task: Task) -> Iterable[Record]:
        context, handler = self._context, handler_of(type(command))
        if command.needs_model:
            if context.loaded is None:
                raise StepError(*NO_MODEL)
            if context.loaded.divided and not command.over_ranks:
                raise StepError(OVER_RANKS, "Load the model in one process, without --ranks and --hostfile.")
        if not isinstance(command, Inside):
            return handler(context, command, task)
        session = context.session
        if getattr(command, "second", False):  # imported only if a second model is read
            from_second = import_module("engine.lockstep.second").second_session
            session = from_second(context, command, task.cancel.is_set)
        return handler(session, command, task.cancel.is_set)

    def use_idle_time(self) -> bool:
        """Compute some prompt logprobs, for about 60 ms; returns True if any were missing."""
        session = self._context.opened
        if session is None or not session.unread.rows:
            return False
        try:
            if (read := session.unread.read()) is not None:
                self._context.emit(read)
            return read is not None
        except BaseException as error:  # it would fail again each time, so the rest is dropped
            session.unread.clear()
            self._context.emit(unexpected(Prefill("", False), error))
            return False

    @property
    def loaded(self) -> bool:
        """True while the session has a model."""
        return self._context.loaded is not None

    def holds(self, settings: LoadSettings) -> Loaded | None:
        """The session's model, if it was loaded with these settings."""
        return self._context.loaded if self._context.asked == settings else None

    def leave(self, last: bool) -> None:
        """Drop the session and its model.

        Args:
            last: True if no other session has a model: then garbage is collected, to free this model.
        """
        self._context.forget(model=True)
        if last:
            free_garbage()


def unexpected(command: Command, error: BaseException) -> protocol.Failure:
    """The `Failure` of a command because of a bug, with its traceback."""
    message = f"{command.kind} failed: {type(error).__name__}: {first_line(error, nothing='no message')}."
    trace = "".join(traceback.format_exception(error))
    return protocol.Failure(command.kind, message, FAULT, expected=False, trace=trace)
