"""The commands of a batch. It has caches and a tree of its own: the session doesn't change."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import zip_longest

import numpy as np
from msgspec.structs import replace

from engine import protocol
from engine.cache import padded
from engine.decoding.batched.batch import LANE_CANDIDATES, Batched, BatchRun, Lane
from engine.decoding.batched.draws import Draws
from engine.decoding.batched.rows import Begin, LaneRows, PaddedRows, SingleRows
from engine.errors import Cancelled, StepError
from engine.model.forward import Runner, rounding_of
from engine.model.weights import free_bytes
from engine.protocol import (
    BatchCompared,
    Distribution,
    LaneCompared,
    LaneDifference,
    LaneOpened,
    LanePrompt,
    LaneToken,
    Measuring,
    PreviewPrompt,
    Record,
)
from engine.sampling.ranking import Row
from engine.session.context import Context
from engine.session.conversation import encoded
from engine.session.session import Session
from engine.setting import check
from engine.settings import BY_NAME, Settings, differences
from engine.task import Stopped, Task, never

# ---- what a batch begins with: encoded prompts, rows for them, and the memory that they need ----

LARGEST = 256
"""Lanes at once at most."""
MEMORY_SHARE = 0.8
"""Of the free memory, what the KV of a batch may take."""
PROBE = 12
"""Tokens of the longer prompt of the check; the other one has a third."""


def open_lanes(session: Session, prompts: Sequence[LanePrompt], first: int) -> list[Lane]:
    """Encode prompts and make their lanes.

    Args:
        session: Its model, and the settings of prompts that have none of their own; not changed.
        prompts: One a lane.
        first: Number of the first lane.

    Raises:
        PromptError: One can't be encoded, is empty or too long.
        SettingsError: A setting is out of its range, or its grammar can't be used.
    """
    made: list[Lane] = []
    for number, prompt in enumerate(prompts, first):
        known = encoded(
            session, PreviewPrompt(prompt.text, prompt.chat, prompt.system, options=prompt.options)
        )
        session.check_prompt(known.ids, 0)
        settings = check(prompt.settings or session.settings, session.facts.vocabulary)
        shared = Batched(session.tokens, session.facts)
        if settings.grammar is not None:
            shared.node_reader.grammars.compiled(settings.grammar)
        own = tuple(_own(session.settings, settings))
        opened = LaneOpened(number, known.text, tuple(known.ids), settings.seed, 0, known.notes, own)
        node = shared.tree.add_prompt(0, known.ids)[-1]
        made.append(Lane(shared, opened, settings, node))
    return made


def _own(usual: Settings, own: Settings) -> Iterator[str]:
    """In words, the settings in which a lane differs."""
    for name, (_, value) in differences(usual, own).items():
        if name == "grammar":
            yield f"grammar {own.grammar.summary}" if own.grammar is not None else "no grammar"
        elif name != "seed":
            yield f"{BY_NAME[name].label} {BY_NAME[name].format(value) or 'none'}"


def not_together(runner: Runner, dtype: str, ids: Sequence[int]) -> str:
    """Why the lanes of a model can't go through it together; empty where they can.

    Wrong KV is silent, and nothing says whether a model's own code takes rows of different padding: so two prompts are
    run both ways, and the logits compared. This takes some short forwards.

    Args:
        runner: Of the model.
        dtype: Of its computation.
        ids: Some tokens to try it with.
    """
    kv = runner.fresh().kv
    why = next(filter(None, map(padded.refusal, kv.caches)), "")
    if not why and kv.chunks_matter:
        why = "its KV cache is quantized, which mlx_lm does only for a single sequence"
    return why or _unlike(runner, dtype, ids)


def _unlike(runner: Runner, dtype: str, ids: Sequence[int]) -> str:
    """Why several padded rows don't give what each gives alone; empty where they do."""
    longer = (list(ids) * PROBE)[:PROBE]
    prompts = [longer, longer[: PROBE // 3]]
    try:
        batched = _tried(PaddedRows(runner), prompts)
    except (ValueError, TypeError, RuntimeError, IndexError, AttributeError) as error:
        return f"the model's code takes no rows of different lengths ({type(error).__name__})"
    alone = _tried(SingleRows(runner), prompts)
    apart = max(float(np.abs(one - other).max()) for one, other in zip(batched, alone, strict=True))
    if apart <= rounding_of(np.concatenate(alone), dtype):
        return ""
    return f"batched, the model's logits differ by {apart:.2g}, which rounding doesn't explain"


def _tried(rows: LaneRows, prompts: Sequence[Sequence[int]]) -> list[Row]:
    """The logits after each prompt, and after one token more."""
    first = read_prompts(rows.begin(prompts))
    return [*first, *rows.forward([prompt[0] for prompt in prompts])]


def read_prompts(prefill: Begin) -> list[Row]:
    """Run a prefill to its end; returns the logits after each prompt."""
    while True:
        try:
            next(prefill)
        except StopIteration as stop:
            found: list[Row] = stop.value
            return found


# ---- memory -----------------------------------------------------------------------------------


def check_room(runner: Runner, lanes: Sequence[tuple[int, Settings]], size: int) -> None:
    """Refuse a batch whose KV doesn't fit the memory that is free.

    Args:
        runner: Of the model; a forward of one token tells what a token takes.
        lanes: Of each lane the tokens of its prompt, and its settings.
        size: Lanes at once.

    Raises:
        StepError: It doesn't fit, or the number of lanes is out of range.
    """
    if not 1 <= size <= LARGEST:
        raise StepError(f"{size} lanes at once are out of range.", f"Give 1 to {LARGEST}.")
    free = free_bytes()
    probe = runner.fresh()
    probe.forward(0)
    each = probe.kv.bytes_per_token() or 0
    at_once = min(size, len(lanes))
    columns = max((tokens + settings.max_tokens for tokens, settings in lanes), default=0)
    needed = at_once * columns * each
    if free is not None and needed > MEMORY_SHARE * free:
        raise StepError(
            f"{at_once} lanes of up to {columns:,} tokens need {needed / 2**30:.1f} GiB of KV; "
            f"{free / 2**30:.1f} GiB are free.",
            "Take fewer lanes at once, or lower max tokens.",
        )


# ---- each lane beside its prompt alone: whether the ids are equal, and what both took ----------


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
    assert alone.roundings is not None
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


# ---- the commands ------------------------------------------------------------------------------


class _Kept:
    """What is kept of a model between two commands; a batch doesn't depend on the session's tree."""

    batch: BatchRun | None = None
    """The batch that was begun last; its caches are kept until the next batch or model."""
    records: Iterator[Record | None] = iter(())
    """The records of the batch, as it continues."""
    single: str | None = None
    """Why lanes of this model go through it one after another, empty if together; None if not yet tried."""

    def open(self, batch: BatchRun) -> None:
        """Continue with a batch, or with lanes that were added to it."""
        self.batch, self.records = batch, batch.go()

    @property
    def run(self) -> BatchRun:
        """The batch.

        Raises:
            StepError: There is none.
        """
        if self.batch is None:
            raise StepError("There is no batch to continue.", "Start one.")
        return self.batch


def start_batch(context: Context, command: protocol.StartBatch, task: Task) -> Iterator[Record]:
    """Begin a batch of prompts."""
    session, kept = context.session, context.of_model(_Kept)
    if not command.prompts:
        raise StepError("A batch needs at least one prompt.", "Give one.")
    kept.batch = None  # its memory is free before the next one takes more
    lanes = open_lanes(session, command.prompts, 0)
    runner = session.runner.fresh()
    check_room(runner, [(len(lane.prompt), lane.settings) for lane in lanes], command.size)
    if kept.single is None:
        kept.single = not_together(runner, session.facts.dtype, lanes[0].prompt)
    rows: LaneRows = PaddedRows(runner)
    if kept.single:
        rows = SingleRows(runner, f"The lanes run one after another: {kept.single}.")
    run = BatchRun(rows, command.size, command.static)
    for lane in lanes:
        run.add(lane)
    kept.open(run)
    opened = tuple(lane.opened for lane in lanes)
    yield protocol.BatchOpened(opened, command.size, command.static, None, rows.note)
    yield from _advance(kept, command.steps, task)


def draw_many(context: Context, command: protocol.DrawMany, task: Task) -> Iterator[Record]:
    """Draw many times after a node."""
    session, kept = context.session, context.of_model(_Kept)
    depth = session.tree[session.node if command.node is None else command.node].depth
    if command.tokens > 1:
        kept.batch = None
        limited = replace(session.settings, max_tokens=command.tokens)
        check_room(session.runner.fresh(), [(depth, limited)] * command.count, command.size)
    draws = Draws(session, command.node, command.count, command.tokens, command.size, task.cancel.is_set)
    yield draws.counted
    if command.tokens > 1:
        kept.open(draws.run)
        yield draws.opened
        yield from _advance(kept, None, task)


def advance_batch(context: Context, command: protocol.AdvanceBatch, task: Task) -> Iterator[Record]:
    """Continue the batch."""
    kept = context.of_model(_Kept)
    if kept.run.over:
        raise StepError("All lanes have ended.", "Add a prompt, or start another batch.")
    yield from _advance(kept, command.steps, task)


def _advance(kept: _Kept, steps: int | None, task: Task) -> Iterator[Record]:
    """Continue until steps are taken, all lanes have ended, or the command is cancelled; a failure ends the batch."""
    run, kept.batch = kept.run, None
    for record in kept.records:
        if isinstance(record, protocol.BatchEnded):
            yield record
            kept.open(run)  # lanes that are added later make it continue
            return
        kept.batch = run
        if record is not None:
            yield record
        if record is None and steps == 0:
            return
        if isinstance(record, protocol.BatchStep) and steps is not None:
            steps -= 1
        if task.cancel.is_set():
            raise Cancelled
        kept.batch = None


def add_lanes(context: Context, command: protocol.AddLanes, task: Task) -> Iterator[Record]:
    """Add prompts to the batch."""
    run = context.of_model(_Kept).run
    if not all(lane.opened.ids for lane in run.lanes):
        raise StepError("These lanes are draws of one prompt.", "Start a batch of prompts.")
    lanes = open_lanes(context.session, command.prompts, len(run.lanes))
    for lane in lanes:
        run.add(lane)
    yield protocol.LanesAdded(tuple(lane.opened for lane in lanes))


def remove_lane(context: Context, command: protocol.RemoveLane, task: Task) -> Iterator[Record]:
    """End a lane of the batch."""
    yield context.of_model(_Kept).run.remove(command.lane)


def compare_batch(context: Context, command: protocol.CompareBatch, task: Task) -> Iterator[Record]:
    """Run each lane's prompt alone, and compare."""
    run = context.of_model(_Kept).run
    if not run.over:
        raise StepError("Some lanes have not ended.", "Run the batch to its end first.")
    lanes = [lane for lane in run.lanes if lane.ended is not None and lane.ended.reason != "removed"]
    yield from compare(lanes, run.totals.ms, context.session.runner.fresh(), task.cancel.is_set)
