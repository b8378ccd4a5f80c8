"""The commands that decode several tokens: runs, beam searches, look-aheads."""

from __future__ import annotations

from collections.abc import Iterator

from engine import protocol
from engine.breakpoints import UNSURE, Breakpoints
from engine.decoding import lookahead
from engine.decoding.beam import search
from engine.decoding.repeat import repeat_reply as repeated
from engine.decoding.run import BreakpointEvaluator, run_steps
from engine.errors import Cancelled, StepError
from engine.protocol import Record
from engine.session.context import Context, with_stop
from engine.session.node_records import window_full
from engine.task import Task


class KeptRun:
    """Search and breakpoints that are kept of a tree between two commands."""

    beams: Iterator[Record] | None = None
    """A paused beam search: its caches are kept until the next prompt, model or search."""
    breakpoints: BreakpointEvaluator | None = None
    """The breakpoints of the last run, with their counts."""


# ---- runs --------------------------------------------------------------------------------------


def run(context: Context, command: protocol.Run, task: Task) -> Iterator[Record]:
    """Take steps until one reaches a stop or a breakpoint."""
    session, kept = context.session, context.of_tree(KeptRun)
    if session.tree[session.node].origin == "prompt" and (full := window_full(session, session.node)):
        yield full
        return
    evaluator = kept.breakpoints
    if evaluator is None or not command.goes_on or not evaluator.is_at(session):
        sets = (command.until or Breakpoints(), UNSURE if command.over_sure else Breakpoints())
        evaluator = kept.breakpoints = BreakpointEvaluator(session, sets)
    ended = False
    for step in run_steps(session, command.pace, task.cancel, task.cancel.is_set, evaluator):
        ended = yield from with_stop(session, step, evaluator.most)
    if evaluator.hits:
        yield protocol.BreakpointHit(session.node, evaluator.hits)
    elif not ended:
        raise Cancelled


# ---- beams -------------------------------------------------------------------------------------


def search_beams(context: Context, command: protocol.SearchBeams, task: Task) -> Iterator[Record]:
    """Begin a beam search."""
    context.of_tree(KeptRun).beams = search(context.session, command.settings)
    yield from _advance(context, command.steps, task)


def go_on_beams(context: Context, command: protocol.GoOnBeams, task: Task) -> Iterator[Record]:
    """Continue the paused beam search."""
    yield from _advance(context, command.steps, task)


def _advance(context: Context, steps: int | None, task: Task) -> Iterator[Record]:
    """Continue the paused beam search; a failure in it ends it."""
    kept = context.of_tree(KeptRun)
    beams, kept.beams = kept.beams, None
    if beams is None:
        raise StepError("There is no beam search to continue.", "Start one.")
    for record in beams:
        yield record
        if not isinstance(record, protocol.BeamStep):
            continue
        steps = None if steps is None else steps - 1
        if not record.last and (steps == 0 or task.cancel.is_set()):
            kept.beams = beams
            if steps != 0:
                raise Cancelled
            return


# ---- look-aheads, and a server's reply ---------------------------------------------------------


def look_ahead(context: Context, command: protocol.LookAhead, task: Task) -> Iterator[Record]:
    """Continue each of some candidates greedily."""
    yield from lookahead.look_ahead(
        context.session, command.node, command.ids, command.tokens, task.cancel.is_set
    )


def repeat_reply(context: Context, command: protocol.RepeatReply, task: Task) -> Iterator[Record]:
    """Generate a server's reply again."""
    yield from repeated(context.session, context.model.model, command, task.cancel.is_set)
