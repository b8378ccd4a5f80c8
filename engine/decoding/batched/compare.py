"""Each lane of a batch beside its prompt alone: whether the ids are equal, and what both took."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from engine.decoding.batched.lane import LANE_CANDIDATES, Lane
from engine.decoding.batched.rows import SingleRows
from engine.decoding.batched.run import BatchRun
from engine.errors import Cancelled
from engine.model.forward import Runner, Stopped, never
from engine.protocol import BatchCompared, Distribution, LaneCompared, LaneDifference, LaneToken, Measuring


def compare(
    lanes: Sequence[Lane], together_ms: float, runner: Runner, stopped: Stopped = never
) -> Iterator[Measuring | LaneCompared | BatchCompared]:
    """Run the prompts of a batch alone, one after another, with the same settings and draws.

    Args:
        lanes: Those that ended by themselves.
        together_ms: What the batch took.
        runner: Its model and settings are used.
        stopped: Polled after each token.

    Yields:
        A record for each lane, and one for all.

    Raises:
        Cancelled: `stopped` returned True.
    """
    tokens, ms = 0, 0.0
    for done, lane in enumerate(lanes):
        yield Measuring("CompareBatch", done, len(lanes), f"lane {lane.number} alone")
        alone, took = run_alone(lane, runner, stopped)
        tokens, ms = tokens + len(alone.taken), ms + took
        yield compared(lane, alone, took)
    batched = sum(len(lane.taken) for lane in lanes)
    yield BatchCompared(len(lanes), batched, together_ms, tokens, ms)


def run_alone(lane: Lane, runner: Runner, stopped: Stopped = never) -> tuple[Lane, float]:
    """Run a lane's prompt alone.

    Returns:
        What came, and the milliseconds of all work.

    Raises:
        Cancelled: `stopped` returned True.
    """
    alone, run = lane.alone(), BatchRun(SingleRows(runner), 1)
    run.add(alone)
    for _ in run.go():
        if stopped():
            raise Cancelled
    return alone, run.totals.ms


def compared(lane: Lane, alone: Lane, ms: float) -> LaneCompared:
    """A lane beside its prompt alone.

    Args:
        lane: In the batch.
        alone: The same prompt alone.
        ms: That it took alone.
    """
    largest = rounding = 0.0
    difference = None
    for index, (one, other) in enumerate(zip_longest(lane.taken, alone.taken)):
        if index < min(len(lane.choices), len(alone.choices)):
            largest = max(largest, _apart(lane.choices[index], alone.choices[index]))
            rounding = max(rounding, 2 * alone.roundings[index])
        if one is None or other is None or one.id != other.id:
            choice = alone.choices[min(index, len(alone.choices) - 1)]
            difference = _difference(index, one, other, choice)
            break
    return LaneCompared(lane.number, len(alone.taken), difference, largest, rounding, ms)


def _apart(one: Distribution, other: Distribution) -> float:
    """How much the logprob of a candidate of either differs at least, at most over all of them."""
    return max(_above(one, other), _above(other, one))


def _above(one: Distribution, other: Distribution) -> float:
    """The same for the candidates of one: a token that is none of the other's best is no more probable than these."""
    values = {each.id: each.logprob for each in other.candidates}
    most = other.candidates[:LANE_CANDIDATES][-1].logprob
    apart = [
        abs(each.logprob - values[each.id]) if each.id in values else each.logprob - most
        for each in one.candidates
        if each.logprob > -math.inf
    ]
    return max(0.0, *apart)


def _difference(
    index: int, one: LaneToken | None, other: LaneToken | None, choice: Distribution
) -> LaneDifference:
    """The first token that differs.

    Args:
        index: Of the token.
        one: In the batch, None where the lane had ended.
        other: Alone, None where it had ended.
        choice: What the latter was drawn from.
    """
    values = {each.id: each.logprob for each in choice.candidates}
    least = choice.candidates[:LANE_CANDIDATES][-1].logprob  # a token that is no candidate is below it
    batched, alone = one.id if one else -1, other.id if other else -1
    gap = abs(values.get(alone, least) - values.get(batched, least)) if one and other else 0.0
    return LaneDifference(index, batched, alone, one.text if one else "", other.text if other else "", gap)
