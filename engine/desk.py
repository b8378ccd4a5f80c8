"""What the handlers of commands share: one model, one session on it, and the function that emits records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import Event
from typing import Any, Protocol

from engine import protocol
from engine.errors import Cancelled, StepError
from engine.gc_policy import GCPolicy
from engine.model.load import Divider, Loaded
from engine.protocol import Command, Record
from engine.sampling.ranking import Row
from engine.session.logits_recorder import AT_A_NODE, LogitsRecorder
from engine.session.restore import Change
from engine.session.session import Session
from engine.session.stops import stop_reached
from engine.settings import LoadSettings, Settings
from engine.task import Task

Stopped = Callable[[], bool]


class Call:
    """One running command, as its handler sees it.

    Args:
        task: The command and its cancel event.
        closing: Whether the engine is about to end.
    """

    def __init__(self, task: Task, closing: Stopped) -> None:
        self.cancel: Event = task.cancel
        """Ends waits early."""
        self._closing = closing

    def stopped(self) -> bool:
        """Whether the command should stop at its next chunk or step."""
        return self.cancel.is_set() or self._closing()


Handler = Callable[[Any, Call], None]
"""Executes commands of one class, given the command and its call; raises `EngineError` where it can't."""


class Capability(Protocol):
    """The handlers of related commands, and the state that these keep from command to command."""

    def handlers(self) -> Mapping[type[Command], Handler]:
        """The handler of each command's class."""

    def forget(self, model: bool) -> None:
        """Drop the state of the current tree, which is about to end; with `model`, that of the model too."""


class Desk:
    """One model and one session at a time.

    Args:
        emit: Receives every record.
        answer_asides: Answers the asides at the head of the queue; long commands call it between their steps.
        waiting: Whether a command waits in the queue.
    """

    def __init__(
        self,
        emit: Callable[[Record], None],
        answer_asides: Callable[[], None],
        waiting: Stopped = lambda: False,
    ) -> None:
        self._emit = emit
        self.answer_asides = answer_asides
        self._waiting = waiting
        self.loaded: Loaded | None = None
        self.opened: Session | None = None
        self.settings = Settings()
        self.change: Change | None = None
        """Makes what computes in a model's place under interventions, for a session that is restored."""
        self.spread: Callable[[LoadSettings], Divider | None] = lambda settings: None
        """What divides a model among processes, for settings that ask for it; None for others."""
        self.capabilities: Sequence[Capability] = ()
        self._gc_policy = GCPolicy()
        self._rows = LogitsRecorder()

    @property
    def session(self) -> Session:
        """The session on the loaded model.

        Raises:
            StepError: No model is loaded.
        """
        if self.opened is None:
            raise StepError("No model is loaded.", "Wait for it, or open one.")
        return self.opened

    @property
    def model(self) -> Loaded:
        """The loaded model.

        Raises:
            StepError: No model is loaded.
        """
        if self.loaded is None:
            raise StepError("No model is loaded.", "Wait for it, or open one.")
        return self.loaded

    def forget(self, model: bool = False) -> None:
        """Make every capability drop the state of the tree, with `model` that of the model too."""
        for capability in self.capabilities:
            capability.forget(model)

    # ---- records ----------------------------------------------------------------------------

    def emit(self, record: Record) -> None:
        """Emit a record, and the row of logits after the node that became the current one with it, where asked for."""
        self._emit(record)
        if isinstance(record, AT_A_NODE) and self.opened is not None and self.opened.record_logits:
            for row in self._rows.new(self.opened, record.next.node):
                self._emit(row)

    def emit_row(self, node: int, row: Row) -> None:
        """Emit a row of logits after a node of the session, with the model's vocabulary if that was not emitted."""
        for record in self._rows.row(self.session, node, row):
            self._emit(record)

    def read_prompt(self) -> bool:
        """Emit the next few of the prompt logprobs; returns whether there were any left."""
        if self.opened is None or (read := self.opened.read_prompt()) is None:
            return False
        self.emit(read)
        return True

    def read_prompts(self, call: Call) -> None:
        """Emit the prompt logprobs until another command waits: what is left then is read in idle time."""
        while not (call.stopped() or self._waiting()) and self.read_prompt():
            pass

    # ---- steps and moves of several handlers --------------------------------------------------

    def emit_step(self, step: protocol.Step, most: float | None = None) -> bool:
        """Emit a step and the stop that it reached; returns whether it reached one. `most` as for `stop_reached`."""
        self.emit(step)
        self._gc_policy.count_step()
        stop = stop_reached(self.session, step.node, most)
        if stop is not None:
            self.emit(stop)
        return stop is not None

    def ensure_at(self, node: int, call: Call) -> None:
        """Move the session to a node, unless it is the current one."""
        if self.session.node != node:
            self.move(node, call)

    def move(self, node: int, call: Call) -> None:
        """Move the session to a node, stepping the tokens of the path that were never stepped."""
        for record in self.session.move_and_step(node, call.stopped):
            if isinstance(record, protocol.Step):
                self.emit_step(record)
            else:
                self.emit(record)

    def take_tokens(
        self,
        node: int,
        ids: Sequence[int],
        origin: protocol.Origin,
        call: Call,
        leave_grammar: bool = False,
    ) -> None:
        """Take tokens after a node, one step each.

        Raises:
            PromptError: The model has no embedding for one of them; then none is taken.
            StepError: The grammar forbids one of them, and `leave_grammar` is not set; then none is taken.
            Cancelled: The command was cancelled; the steps taken until then stay.
        """
        self.session.tokens.check(ids)
        self.ensure_at(node, call)
        for step in self.session.insert(ids, origin, leave_grammar=leave_grammar):
            self.emit_step(step)
            self.answer_asides()
            if call.stopped():
                raise Cancelled
