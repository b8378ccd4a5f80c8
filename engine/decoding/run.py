"""Steps without end: at a pace, or back to back with the forward of one beside the inspection of the one before.

Back to back, the graph of the next forward is built while this one is evaluated, before its token is known: the
token's place in it is an array that is written once the token is. No token is guessed and the records are those of
single steps; nothing is thrown away but one graph that was never evaluated, when the run is broken off.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from threading import Event

from engine.decoding.breakpoint_evaluation import BreakpointEvaluator
from engine.model.forward import PipelinedForward, Stopped
from engine.records import KVReading, Memory, Origin, Step, StepTimes
from engine.session.node_logits import NodeLogits, memory
from engine.session.session import Session
from engine.session.stops import stop_reached
from engine.stalls import StallTimes, stall_times


def steps(
    session: Session, pace: float | None, cancel: Event, stopped: Stopped, breaking: BreakpointEvaluator
) -> Iterator[Step]:
    """The steps of a run: at a pace where there is one, else back to back; none where a breakpoint holds already."""
    if breaking.held:
        return iter(())
    return paced(session, pace, cancel, stopped, breaking) if pace else run(session, stopped, breaking)


def paced(
    session: Session,
    pace: float,
    cancel: Event,
    stopped: Stopped,
    breaking: BreakpointEvaluator | None = None,
) -> Iterator[Step]:
    """Single steps, at most `pace` a second, until a stop or a breakpoint is reached or `stopped` says so.

    Args:
        session: Where the steps are taken.
        pace: Steps a second.
        cancel: Cuts a wait short.
        stopped: Asked before each step.
        breaking: Where to stop besides.
    """
    due, breaking = time.perf_counter(), breaking or BreakpointEvaluator(session)
    while not stopped():
        step = session.step()
        broken = breaking.after(session.here.look)
        yield step
        if broken or stop_reached(session, step.node) is not None:
            return
        due = max(due + 1 / pace, time.perf_counter())
        cancel.wait(due - time.perf_counter())


def run(session: Session, stopped: Stopped, breaking: BreakpointEvaluator | None = None) -> Iterator[Step]:
    """Steps back to back, until a stop or a breakpoint is reached or `stopped` says so.

    Args:
        session: Stands at a step's node when it is yielded; its cache may be one token ahead until the end.
        stopped: Asked once a step; the step under way is still taken.
        breaking: Where to stop besides.
    """
    breaking = breaking or BreakpointEvaluator(session)
    while not stopped():
        if session.overlaps:
            yield from _back_to_back(session, stopped, breaking)
        else:
            step = session.step()
            breaking.after(session.here.look)
            yield step
        if breaking.held or stop_reached(session, session.node) is not None:
            return


@dataclass(frozen=True, slots=True)
class _Flight:
    """A token whose forward is under way."""

    node: int
    origin: Origin
    kv: KVReading
    memory: Memory
    launched: float
    others: StallTimes
    """What collecting and drawing had taken until then."""


def _back_to_back(session: Session, stopped: Stopped, breaking: BreakpointEvaluator) -> Iterator[Step]:
    """Steps for as long as the caches could take a token that nobody wanted off again."""
    session.make_ready()
    ahead = PipelinedForward(session.runner)
    before = session.here
    try:
        ahead.prepare()
        flight: _Flight | None = _launch(session, ahead, before.look)
        while flight is not None:
            more = not stopped() and stop_reached(session, flight.node) is None and session.overlaps
            if more:
                ahead.prepare()
            row = ahead.collect()
            forward_ms = (time.perf_counter() - flight.launched) * 1000
            look = session.looker.look(flight.node, row, session.settings)
            total_ms = (time.perf_counter() - flight.launched) * 1000
            others = stall_times().since(flight.others)
            broken = breaking.after(look)  # before the launch: a token that isn't wanted is never grown
            following = _launch(session, ahead, look) if more and not broken else None
            begun = time.perf_counter()
            here = session.looker.show(look, session.settings.candidates)
            session.stand(here)
            inspect_ms = (time.perf_counter() - begun) * 1000
            ms = StepTimes(total_ms, forward_ms, look.sample_ms, inspect_ms, True, *others)
            yield session.looker.tell(before, here, flight.origin, flight.kv, ms, flight.memory)
            before, flight = here, following
    finally:
        ahead.drop(session.tree[session.node].depth)


def _launch(session: Session, ahead: PipelinedForward, look: NodeLogits) -> _Flight:
    """Begin the forward of the token that was picked after a node."""
    others = stall_times()
    launched = time.perf_counter()  # before: on the CPU backend the call itself waits for most of the forward
    ahead.launch(look.sampled.picked)
    origin: Origin = "greedy" if look.sampled.draw is None else "sampled"
    node = session.looker.grow(look.node, look.sampled.picked, origin)
    return _Flight(node, origin, session.reading(), memory(), launched, others)
