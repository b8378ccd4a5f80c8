"""The commands that decode several tokens: runs, beam searches, look-aheads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from engine import protocol
from engine.breakpoints import UNSURE, Breakpoints
from engine.decoding.beam import search
from engine.decoding.breakpoint_evaluation import BreakpointEvaluator
from engine.decoding.lookahead import look_ahead
from engine.decoding.run import run_steps
from engine.desk import Call, Desk, Handler
from engine.errors import Cancelled, StepError
from engine.protocol import Command, Record
from engine.session.stops import window_full


class DecodingCommands:
    """Handlers of runs and searches.

    Args:
        desk: The session, and where records are emitted.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
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
        }

    def forget(self, model: bool) -> None:
        """Drop the paused search and the breakpoints: their nodes belong to the tree that ends."""
        self._beams = self._breakpoints = None

    # ---- runs -------------------------------------------------------------------------------

    def _run(self, command: protocol.Run, call: Call) -> None:
        session = self._desk.session
        if session.tree[session.node].origin == "prompt" and (full := window_full(session, session.node)):
            self._desk.emit(full)
            return
        evaluator = self._breakpoints = self._evaluator(command)
        ended = False
        for step in run_steps(session, command.pace, call.cancel, call.stopped, evaluator):
            ended = self._desk.emit_step(step, evaluator.most)
            self._desk.answer_asides()
        if evaluator.hits:
            self._desk.emit(protocol.BreakpointHit(session.node, evaluator.hits))
        elif not ended:
            raise Cancelled

    def _evaluator(self, command: protocol.Run) -> BreakpointEvaluator:
        """The evaluator of a run's breakpoints: that of the run before where the command continues it."""
        session = self._desk.session
        if command.goes_on and self._breakpoints is not None and self._breakpoints.is_at(session):
            return self._breakpoints
        sets = (command.until or Breakpoints(), UNSURE if command.over_sure else Breakpoints())
        return BreakpointEvaluator(session, sets)

    # ---- beams ------------------------------------------------------------------------------

    def _search(self, command: protocol.SearchBeams, call: Call) -> None:
        self._beams = search(self._desk.session, command.settings)
        self._advance(command.steps, call)

    def _go_on(self, command: protocol.GoOnBeams, call: Call) -> None:
        self._advance(command.steps, call)

    def _advance(self, steps: int | None, call: Call) -> None:
        """Continue the paused beam search; a failure in it ends it."""
        waiting, self._beams = self._beams, None
        if waiting is None:
            raise StepError("There is no beam search to go on with.", "Start one.")
        for record in waiting:
            self._desk.emit(record)
            if not isinstance(record, protocol.BeamStep):
                continue
            self._desk.answer_asides()
            steps = None if steps is None else steps - 1
            if not record.last and (steps == 0 or call.stopped()):
                self._beams = waiting
                if steps != 0:
                    raise Cancelled
                return

    # ---- look-aheads ------------------------------------------------------------------------

    def _look_ahead(self, command: protocol.LookAhead, call: Call) -> None:
        session = self._desk.session
        for record in look_ahead(session, command.node, command.ids, command.tokens, call.stopped):
            self._desk.emit(record)
            self._desk.answer_asides()
