"""The commands that decode several tokens: runs, beam searches, look-aheads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from engine import protocol
from engine.breakpoints import UNSURE, Breakpoints
from engine.context import Capability, EngineContext, Handler
from engine.decoding.beam import search
from engine.decoding.lookahead import look_ahead
from engine.decoding.repeat import repeat_reply
from engine.decoding.run import BreakpointEvaluator, run_steps
from engine.errors import Cancelled, StepError
from engine.protocol import Command, Record
from engine.session.node_records import window_full
from engine.task import Task


class DecodingCommands(Capability):
    """Handlers of runs and searches."""

    def __init__(self, context: EngineContext) -> None:
        super().__init__(context)
        self._beams: Iterator[Record] | None = None
        """A paused beam search: its caches are kept until the next prompt, model or search."""
        self._breakpoints: BreakpointEvaluator | None = None
        """Those of the last run, with their counts."""

    def handlers(self) -> Mapping[type[Command], Handler]:
        """See `Capability`."""
        return {
            protocol.Run: self._run,
            protocol.SearchBeams: self._search,
            protocol.GoOnBeams: self._go_on,
            protocol.LookAhead: self._look_ahead,
            protocol.RepeatReply: self._repeat,
        }

    def forget(self, model: bool) -> None:
        """Drop the paused search and the breakpoints: their nodes belong to the tree that ends."""
        self._beams = self._breakpoints = None

    # ---- runs -------------------------------------------------------------------------------

    def _run(self, command: protocol.Run, task: Task) -> None:
        session = self._context.session
        if session.tree[session.node].origin == "prompt" and (full := window_full(session, session.node)):
            self._context.emit(full)
            return
        evaluator = self._breakpoints = self._evaluator(command)
        ended = False
        for step in run_steps(session, command.pace, task.cancel, task.cancel.is_set, evaluator):
            ended = self._context.emit_step(step, evaluator.most)
            self._context.answer_asides()
        if evaluator.hits:
            self._context.emit(protocol.BreakpointHit(session.node, evaluator.hits))
        elif not ended:
            raise Cancelled

    def _evaluator(self, command: protocol.Run) -> BreakpointEvaluator:
        """The evaluator of a run's breakpoints: that of the run before where the command continues it."""
        session = self._context.session
        if command.goes_on and self._breakpoints is not None and self._breakpoints.is_at(session):
            return self._breakpoints
        sets = (command.until or Breakpoints(), UNSURE if command.over_sure else Breakpoints())
        return BreakpointEvaluator(session, sets)

    # ---- beams ------------------------------------------------------------------------------

    def _search(self, command: protocol.SearchBeams, task: Task) -> None:
        self._beams = search(self._context.session, command.settings)
        self._advance(command.steps, task)

    def _go_on(self, command: protocol.GoOnBeams, task: Task) -> None:
        self._advance(command.steps, task)

    def _advance(self, steps: int | None, task: Task) -> None:
        """Continue the paused beam search; a failure in it ends it."""
        waiting, self._beams = self._beams, None
        if waiting is None:
            raise StepError("There is no beam search to continue.", "Start one.")
        for record in waiting:
            self._context.emit(record)
            if not isinstance(record, protocol.BeamStep):
                continue
            self._context.answer_asides()
            steps = None if steps is None else steps - 1
            if not record.last and (steps == 0 or task.cancel.is_set()):
                self._beams = waiting
                if steps != 0:
                    raise Cancelled
                return

    # ---- look-aheads ------------------------------------------------------------------------

    def _look_ahead(self, command: protocol.LookAhead, task: Task) -> None:
        session = self._context.session
        self._context.emit_all(
            look_ahead(session, command.node, command.ids, command.tokens, task.cancel.is_set), asides=True
        )

    # ---- a server's reply -------------------------------------------------------------------

    def _repeat(self, command: protocol.RepeatReply, task: Task) -> None:
        model = self._context.model.model
        self._context.emit_all(
            repeat_reply(self._context.session, model, command, task.cancel.is_set), asides=True
        )
