"""Runs: steps at a pace, or back to back with the forward of one overlapping the inspection of the one before.

Back to back, the graph of the next forward is built while this one is evaluated, before its token is known: the
token's slot in it is an array that is written once the token is known. No token is guessed and the records are those
of single steps; a run that ends early discards only one graph that was never evaluated.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from threading import Event

from engine.decoding.breakpoint_evaluation import BreakpointEvaluator
from engine.frozen import frozen
from engine.logits.node_sampler import NodeLogits
from engine.model.forward import PipelinedForward, Stopped
from engine.protocol import KVReading, Memory, Origin, Step, StepTimes
from engine.session.node_logits import memory
from engine.session.session import Session
from engine.session.stops import stop_reached
from engine.stalls import StallTimes, stall_times


def run_steps(
    session: Session, pace: float | None, cancel: Event, stopped: Stopped, breaking: BreakpointEvaluator
) -> Iterator[Step]:
    """The steps of a run: at `pace` if given, else back to back; none where a breakpoint holds already."""
    if breaking.hits:
        return iter(())
    return paced(session, pace, cancel, stopped, breaking) if pace else run(session, stopped, breaking)


def paced(
    session: Session,
    pace: float,
    cancel: Event,
    stopped: Stopped,
    breaking: BreakpointEvaluator | None = None,
) -> Iterator[Step]:
    """Single steps, at most `pace` a second, until a stop or a breakpoint is reached or `stopped` returns True.

    Args:
        session: It takes the steps.
        pace: Steps a second.
        cancel: Ends a wait early.
        stopped: Polled before each step.
        breaking: Breakpoints to stop at, too.
    """
    due, breaking = time.perf_counter(), breaking or BreakpointEvaluator(session)
    while not stopped():
        step = session.step()
        broken = breaking.evaluate(session.position.node_logits)
        yield step
        if broken or stop_reached(session, step.node, breaking.most) is not None:
            return
        due = max(due + 1 / pace, time.perf_counter())
        cancel.wait(due - time.perf_counter())


def run(session: Session, stopped: Stopped, breaking: BreakpointEvaluator | None = None) -> Iterator[Step]:
    """Steps back to back, until a stop or a breakpoint is reached or `stopped` returns True.

    Args:
        session: Its current node is that of the yielded step; its cache may be one token ahead until the end.
        stopped: Polled once a step; the step under way is still taken.
        breaking: Breakpoints to stop at, too.
    """
    breaking = breaking or BreakpointEvaluator(session)
    while not stopped():
        if session.can_pipeline:
            yield from _back_to_back(session, stopped, breaking)
        else:
            step = session.step()
            breaking.evaluate(session.position.node_logits)
            yield step
        if breaking.hits or stop_reached(session, session.node, breaking.most) is not None:
            return


@frozen
class _PendingStep:
    """A token whose forward is under way."""

    node: int
    origin: Origin
    kv: KVReading
    memory: Memory
    launched: float
    others: StallTimes
    """What garbage collection and drawing had taken until then."""


def _back_to_back(session: Session, stopped: Stopped, breaking: BreakpointEvaluator) -> Iterator[Step]:
    """Steps for as long as the caches can undo a token that turns out to be unwanted."""
    session.prepare_step()
    pipeline = PipelinedForward(session.runner)
    before, reader = session.position, session.node_reader
    try:
        pipeline.prepare()
        step: _PendingStep | None = _launch(session, pipeline, before.node_logits)
        while step is not None:
            ends = stop_reached(session, step.node, breaking.most) is not None
            more = not stopped() and not ends and session.can_pipeline
            if more:
                pipeline.prepare()
            row = pipeline.collect()
            forward_ms = (time.perf_counter() - step.launched) * 1000
            node_logits = reader.sample(step.node, row, session.settings)
            total_ms = (time.perf_counter() - step.launched) * 1000
            stalls = stall_times().since(step.others)
            hit = breaking.evaluate(node_logits)  # before the launch: no unwanted token enters the tree
            following = _launch(session, pipeline, node_logits) if more and not hit else None
            begun = time.perf_counter()
            position = reader.position(node_logits, session.settings.candidates)
            session.set_position(position)
            inspect_ms = (time.perf_counter() - begun) * 1000
            cold = session.runner.first_uses.take("step")
            ms = StepTimes(total_ms, forward_ms, node_logits.sample_ms, inspect_ms, True, *stalls, cold)
            yield reader.step_record(before, position, step.origin, step.kv, ms, step.memory)
            before, step = position, following
    finally:
        pipeline.drop(session.tree[session.node].depth)


def _launch(session: Session, pipeline: PipelinedForward, node_logits: NodeLogits) -> _PendingStep:
    """Begin the forward of the token that the sampler picked after a node."""
    stalls = stall_times()
    launched = time.perf_counter()  # before: on the CPU backend the call itself waits for most of the forward
    pipeline.launch(node_logits.sampled.picked)
    origin: Origin = "greedy" if node_logits.sampled.draw is None else "sampled"
    node = session.node_reader.add_token(node_logits.node, node_logits.sampled.picked, origin)
    return _PendingStep(node, origin, session.kv_reading(), memory(), launched, stalls)
