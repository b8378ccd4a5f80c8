"""The commands that decode without being asked for each token: runs, beam searches, looks ahead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from engine import commands, records
from engine.breakpoints import UNSURE, Breakpoints
from engine.commands import Command
from engine.decoding.beam import search
from engine.decoding.breakpoint_evaluation import BreakpointEvaluator
from engine.decoding.lookahead import look_ahead
from engine.decoding.run import steps
from engine.desk import Call, Desk, Handler
from engine.errors import Cancelled, StepError
from engine.records import Record
from engine.session.stops import window_full


class DecodingCommands:
    """Carries out runs and searches.

    Args:
        desk: The session and the way out for records.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._beams: Iterator[Record] | None = None
        """A beam search that isn't over: its caches are kept until the next prompt, model or search."""
        self._breakpoints: BreakpointEvaluator | None = None
        """Those of the last run, with what they counted."""

    def handlers(self) -> Mapping[type[Command], Handler]:
        """See `Capability`."""
        return {
            commands.Run: self._run,
            commands.SearchBeams: self._search,
            commands.GoOnBeams: self._go_on,
            commands.LookAhead: self._look_ahead,
        }

    def forget(self, model: bool) -> None:
        """The nodes of a waiting search and of counted breakpoints are of the tree that ends."""
        self._beams = self._breakpoints = None

    # ---- runs -------------------------------------------------------------------------------

    def _run(self, command: commands.Run, call: Call) -> None:
        session = self._desk.session
        if session.tree[session.node].origin == "prompt" and (full := window_full(session, session.node)):
            self._desk.emit(full)
            return
        evaluator = self._breakpoints = self._evaluator(command)
        ended = False
        for step in steps(session, command.pace, call.cancel, call.stopped, evaluator):
            ended = self._desk.hand_out(step)
            self._desk.answer_asides()
        if evaluator.held:
            self._desk.emit(records.BreakpointHit(session.node, evaluator.held))
        elif not ended:
            raise Cancelled

    def _evaluator(self, command: commands.Run) -> BreakpointEvaluator:
        """What evaluates a run's breakpoints: that of the run before where it goes on."""
        session = self._desk.session
        if command.goes_on and self._breakpoints is not None and self._breakpoints.stands_in(session):
            return self._breakpoints
        sets = (command.until or Breakpoints(), UNSURE if command.over_sure else Breakpoints())
        return BreakpointEvaluator(session, sets)

    # ---- beams ------------------------------------------------------------------------------

    def _search(self, command: commands.SearchBeams, call: Call) -> None:
        self._beams = search(self._desk.session, command.settings)
        self._advance(command.steps, call)

    def _go_on(self, command: commands.GoOnBeams, call: Call) -> None:
        self._advance(command.steps, call)

    def _advance(self, steps: int | None, call: Call) -> None:
        """Go on with the beam search that waits; whatever fails in it ends it."""
        waiting, self._beams = self._beams, None
        if waiting is None:
            raise StepError("There is no beam search to go on with.", "Start one.")
        for record in waiting:
            self._desk.emit(record)
            if not isinstance(record, records.BeamStep):
                continue
            self._desk.answer_asides()
            steps = None if steps is None else steps - 1
            if not record.last and (steps == 0 or call.stopped()):
                self._beams = waiting
                if steps != 0:
                    raise Cancelled
                return

    # ---- looks ahead ------------------------------------------------------------------------

    def _look_ahead(self, command: commands.LookAhead, call: Call) -> None:
        session = self._desk.session
        for record in look_ahead(session, command.node, command.ids, command.tokens, call.stopped):
            self._desk.emit(record)
            self._desk.answer_asides()
