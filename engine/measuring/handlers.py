"""Handlers of the commands that measure; they use separate caches, so that the session doesn't change."""

from __future__ import annotations

from collections.abc import Iterator

from engine import protocol
from engine.files import typed
from engine.measuring import kv_costs, roofline
from engine.measuring import profile as profiling
from engine.measuring import race as racing
from engine.protocol import Record
from engine.session.context import Context
from engine.session.session import Session
from engine.task import Task


def _session(context: Context) -> Session:
    """The session, if its current node was computed without interventions.

    Raises:
        StepError: No model is loaded, or the node was computed under interventions.
    """
    session = context.session
    session.interventions.refuse(session.node, "measurements are")
    return session


def race(context: Context, command: protocol.Race, task: Task) -> Iterator[Record]:
    """Race decoding with a KV cache against decoding without one."""
    yield from racing.race(context.model, _session(context), command.first, command.last, task.cancel.is_set)


def profile(context: Context, command: protocol.Profile, task: Task) -> Iterator[Record]:
    """Measure the parts of the next step."""
    yield from profiling.profile(context.model.model, _session(context), command.repeats, task.cancel.is_set)


def capture_metal(context: Context, command: protocol.CaptureMetal, task: Task) -> Iterator[Record]:
    """Record one step with Metal."""
    yield profiling.capture(_session(context), typed(command.path))


def measure_roofline(context: Context, command: protocol.MeasureRoofline, task: Task) -> Iterator[Record]:
    """Compare prefill and decode with the machine's limits."""
    yield from roofline.roofline(context.model, _session(context), task.cancel.is_set)


def compare_kv(context: Context, command: protocol.CompareKV, task: Task) -> Iterator[Record]:
    """Compute the path with quantized KV caches."""
    yield from kv_costs.compare(
        context.model, _session(context), command.bits, command.group_size, task.cancel.is_set
    )


def read_machine(context: Context, command: protocol.ReadMachine, task: Task) -> Iterator[Record]:
    """Read the facts of the machine."""
    from engine.measuring import machine  # needed rarely, so start-up doesn't import it

    yield machine.read_machine(context.model.facts)
