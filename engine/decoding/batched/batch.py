"""A batch: its lanes, each a prompt with settings and draws of its own, who has a row, who waits, and the steps of all.

A step takes the token that each live lane drew, and runs those of the lanes that go on in one forward. A lane that ends
leaves its row, so that one that waits gets it; in a static batch it keeps the row, whose forwards then are for nothing,
until all have ended.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence

from engine.decoding.batched.rows import LaneRows
from engine.errors import StepError
from engine.logits.node_sampler import NodeLogits, Position
from engine.model.forward import rounding_of
from engine.model.tokens import Tokens
from engine.protocol import (
    BatchEnded,
    BatchStep,
    BatchTotals,
    Distribution,
    LaneEnd,
    LaneEnded,
    LaneKV,
    LaneOpened,
    LanesJoined,
    LanesPrefilled,
    LaneStarted,
    LaneToken,
    ModelFacts,
    Origin,
)
from engine.sampling.ranking import Row, Rows, blocks, ranked_rows
from engine.session.node_records import NodeReader, stop_reached, window_full
from engine.settings import Settings
from engine.tree import ROOT, TokenPaths, TokenTree

LANE_CANDIDATES = 5
"""Candidates that the record of a lane's token has: those of 40 lanes are as many as 10 steps of a session have."""


class Batched:
    """What lanes that go on from one text share: the model's tokens, and a tree of all that they say.

    Lanes of several prompts have a tree each: where one prompt begins with another, what the shorter one continues with
    may be tokens of the longer one, which would count as a prompt in one lane and as a completion in the other.

    Args:
        tokens: The model's tokenizer.
        facts: The model's.
        tree: Where the lanes' tokens are added; None for a new one.
        pending: Bytes of unfinished characters by node of that tree.
    """

    def __init__(
        self,
        tokens: Tokens,
        facts: ModelFacts,
        tree: TokenTree | None = None,
        pending: dict[int, bytes] | None = None,
    ) -> None:
        self.tokens, self.facts = tokens, facts
        self.tree = TokenTree() if tree is None else tree
        self.pending: dict[int, bytes] = {} if pending is None else pending
        self.node_reader = NodeReader(tokens, self.tree, self.pending)


class Lane:
    """One prompt of a batch.

    Args:
        shared: What all lanes of its text share.
        opened: Its number, its prompt, and its draws' re-roll count.
        settings: Of its sampler and its stops.
        node: The last node of its prompt.
        limit: Tokens at most; None for those of the settings.
    """

    def __init__(
        self, shared: Batched, opened: LaneOpened, settings: Settings, node: int, limit: int | None = None
    ) -> None:
        self.tokens, self.facts = shared.tokens, shared.facts
        self.tree, self.node_reader = shared.tree, shared.node_reader
        self._pending = shared.pending
        self.opened, self.settings, self.node = opened, settings, node
        self.number, self.begin, self.limit = opened.lane, node, limit
        self.position: Position
        """The logits after its last token, and what is drawn from them; there once its prompt is read."""
        self.taken: list[LaneToken] = []
        """Its decoded tokens."""
        self.choices: list[Distribution] = []
        """What each of them was drawn from, and the next one is."""
        self.roundings: list[float] | None = None
        """The change that rounding may make to the logits of each of these, where it runs alone."""
        self.ended: LaneEnded | None = None

    @property
    def prompt(self) -> Sequence[int]:
        """Token ids before its first token."""
        return self.tree.tokens(self.begin)

    def alone(self) -> Lane:
        """The same prompt, settings and draws in a tree of its own, with nothing decoded yet."""
        tree, node = copied_path(self.tree, self.begin)
        unfinished = self._pending.get(self.begin)
        shared = Batched(self.tokens, self.facts, tree, {node: unfinished} if unfinished else {})
        lane = Lane(shared, self.opened, self.settings, node, self.limit)
        lane.roundings = []
        return lane

    def sample(self, row: Row) -> NodeLogits:
        """Sample from the logits after its last token.

        Raises:
            StepError: The sampler can't.
        """
        return self.node_reader.sample(self.node, row, self.settings, reroll=self.opened.reroll)

    def keep(self, position: Position) -> None:
        """Go on from what was sampled after its last token."""
        self.choices.append(position.next)
        if self.roundings is not None:
            self.roundings.append(rounding_of(position.node_logits.row, self.facts.dtype))
        self.position = position

    def full(self, ms: float) -> LaneEnded | None:
        """The end of a lane whose prompt fills the context window."""
        full = window_full(self, self.node)
        return None if full is None else self.end(full.reason, full.detail, ms)

    def take(self) -> int:
        """Take the token that was drawn; returns its id."""
        token = self.position.next.picked
        origin: Origin = "greedy" if self.position.next.draw is None else "sampled"
        self.node = self.node_reader.add_token(self.node, token, origin)
        return token

    def stop(self, ms: float) -> LaneEnded | None:
        """The stop that its last token reached, None where the lane goes on."""
        if (stop := stop_reached(self, self.node)) is not None:
            return self.end(stop.reason, stop.detail, ms)
        return self.end("length", "", ms) if self.tokens_taken == self.limit else None

    def end(self, reason: LaneEnd, detail: str, ms: float) -> LaneEnded:
        """End the lane."""
        self.ended = LaneEnded(self.number, reason, detail, self.tokens_taken, ms)
        return self.ended

    @property
    def tokens_taken(self) -> int:
        """Tokens after its prompt."""
        return self.tree[self.node].depth - self.tree[self.begin].depth

    def record(self, before: Position, kv: LaneKV | None) -> LaneToken:
        """The record of its last token.

        Args:
            before: The logits that it was drawn from.
            kv: What the lane holds; None where it ended and has no row any more.
        """
        taken = next(each for each in before.next.candidates if each.id == before.next.picked)
        made = LaneToken(
            lane=self.number,
            index=len(self.taken),
            position=self.tree[self.node].depth - 1,
            id=taken.id,
            text=taken.text,
            raw=taken.raw,
            special=taken.special,
            logprob=taken.logprob,
            prob=taken.prob,
            sampler_prob=taken.sampler_prob,
            rank=taken.rank,
            kv=kv,
            next=None if self.ended is not None else self.position.next,
        )
        self.taken.append(made)
        return made


def read(lanes: Sequence[Lane], rows: Sequence[Row] | Rows) -> None:
    """Sample from the logits after the last token of each of some lanes, and read them, all at once.

    Raises:
        StepError: A sampler can't, or the model's logits are not numbers.
    """
    positions: list[Position] = []
    for block in blocks(rows):
        positions += _read(lanes[len(positions) : len(positions) + len(block)], block)
    for lane, position in zip(lanes, positions, strict=True):
        lane.keep(position)


def _read(lanes: Sequence[Lane], rows: Rows) -> list[Position]:
    logits = [lane.sample(row) for lane, row in zip(lanes, rows, strict=True)]
    counts = [min(LANE_CANDIDATES, lane.settings.candidates) for lane in lanes]
    best = ranked_rows(rows, max(counts))
    return [
        lane.node_reader.position(each, count, ids)
        for lane, each, count, ids in zip(lanes, logits, counts, best, strict=True)
    ]


def copied_path(tree: TokenPaths, node: int) -> tuple[TokenTree, int]:
    """A tree with one path of another one, and the number of the path's last node in it."""
    made, parent = TokenTree(), ROOT
    for original in (tree[each] for each in tree.nodes(node)):
        parent = made.add(parent, original.token, original.origin)
        at = made[parent]
        at.start, at.prompt_begin, at.decoded = original.start, original.prompt_begin, original.decoded
    return made, parent


# ---- the batch under way -----------------------------------------------------------------------

BatchRecord = LanesJoined | LanesPrefilled | LaneStarted | BatchStep | LaneEnded | BatchEnded


class BatchRun:
    """One batch.

    Args:
        rows: Runs the lanes.
        size: Rows at once.
        static: See the module.
    """

    def __init__(self, rows: LaneRows, size: int, static: bool = False) -> None:
        self._rows, self._size = rows, size
        self._static = static and rows.at_once
        self.lanes: list[Lane] = []
        """All, by number."""
        self._live: list[Lane] = []
        """Those that have a row, in the order of the rows."""
        self._joining: list[Lane] = []
        """Those that are prefilled now."""
        self._waiting: deque[Lane] = deque()
        self._steps = 0
        self._prompt = [0, 0]
        self._decoded = [0, 0, 0, 0]
        self._ms = [0.0, 0.0]

    def add(self, lane: Lane) -> None:
        """Let a lane wait for its row."""
        self.lanes.append(lane)
        self._waiting.append(lane)

    def remove(self, number: int) -> LaneEnded:
        """Take a lane out; its row leaves before the next step.

        Raises:
            StepError: There is no such lane, or it has ended.
        """
        lane = self.lanes[number] if 0 <= number < len(self.lanes) else None
        if lane is None or lane.ended is not None:
            raise StepError(f"Lane {number} is not running.", "Choose one that has not ended.")
        if lane in self._waiting:
            self._waiting.remove(lane)
        return lane.end("removed", "", self.totals.ms)

    @property
    def over(self) -> bool:
        """True if no lane is live and none waits."""
        return not self._waiting and all(lane.ended for lane in (*self._joining, *self._live))

    @property
    def totals(self) -> BatchTotals:
        """Sums so far."""
        return BatchTotals(*self._prompt, *self._decoded, *self._ms)

    def go(self) -> Iterator[BatchRecord | None]:
        """Run until all lanes have ended; a caller may pause at any record, and add and remove lanes meanwhile.

        Yields:
            What happened; None where the next step begins.

        Raises:
            StepError: A sampler can't go on, the memory doesn't suffice, or the logits are not numbers.
        """
        while True:
            self._leave()
            while self._admits():
                yield from self._admit()
                self._leave()
            if not self._live:
                break
            yield None
            self._leave()  # of those that were taken out meanwhile
            if self._live:
                yield from self._step()
        yield BatchEnded(self.totals)

    # ---- rows -------------------------------------------------------------------------------

    def _leave(self) -> None:
        """Take the rows of lanes that ended: in a static batch only when all have, unless a person took them out."""
        all_ended = all(lane.ended for lane in self._live)
        places = [
            place
            for place, lane in enumerate(self._live)
            if lane.ended is None or (self._static and not all_ended and lane.ended.reason != "removed")
        ]
        if len(places) < len(self._live):
            self._rows.keep(places)
            self._live = [self._live[place] for place in places]

    def _admits(self) -> bool:
        """True if a lane that waits can begin now."""
        together = self._static or not self._rows.joins
        return bool(self._waiting) and (not self._live if together else len(self._live) < self._size)

    def _admit(self) -> Iterator[BatchRecord]:
        """Prefill as many of those that wait as there are rows for."""
        room = self._size - len(self._live)
        group = self._joining = [self._waiting.popleft() for _ in range(min(room, len(self._waiting)))]
        numbers, prompts = tuple(lane.number for lane in group), [lane.prompt for lane in group]
        longest = max(map(len, prompts))
        padded = tuple(longest - len(ids) if self._rows.at_once else 0 for ids in prompts)
        columns = longest if self._rows.at_once else sum(map(len, prompts))
        yield LanesJoined(numbers, padded)
        prefill = self._rows.begin(prompts)
        while True:
            try:
                chunk = next(prefill)
            except StopIteration as stop:
                rows: Sequence[Row] = stop.value
                break
            except (MemoryError, RuntimeError) as error:
                check_memory(error, len(group))
                raise
            self._prompt[0] += chunk.tokens
            self._prompt[1] += chunk.padding
            self._ms[0] += chunk.ms
            yield LanesPrefilled(numbers, chunk.done, columns, chunk.tokens, chunk.padding, chunk.ms)
        self._live, self._joining = [*self._live, *group], []
        yield from self._start(group, rows)

    def _start(self, group: Sequence[Lane], rows: Sequence[Row]) -> Iterator[BatchRecord]:
        """Sample after each prompt."""
        held = self._rows.read()[-len(group) :]
        for lane, row, kv in zip(group, rows, held, strict=True):
            if lane.ended is not None:  # taken out while it was prefilled
                continue
            begun = time.perf_counter()
            read([lane], [row])
            self._ms[1] += (time.perf_counter() - begun) * 1000
            yield LaneStarted(lane.number, lane.position.next, kv, self.totals.ms)
            if (full := lane.full(self.totals.ms)) is not None:
                yield full

    # ---- a step -----------------------------------------------------------------------------

    def _step(self) -> Iterator[BatchRecord]:
        """Take the token of each live lane, and run those that go on."""
        begun = time.perf_counter()
        live = [lane for lane in self._live if lane.ended is None]
        before = {lane.number: lane.position for lane in live}
        for lane in live:
            lane.take()
            lane.stop(self.totals.ms)
        forward_ms, rows = self._forward()
        held = dict(zip((lane.number for lane in self._live), self._rows.read(), strict=True)) if rows else {}
        tokens: tuple[LaneToken, ...] = tuple(
            lane.record(before[lane.number], held.get(lane.number)) for lane in live
        )
        self._steps += 1
        ms = (time.perf_counter() - begun) * 1000
        self._ms[1] += ms
        self._decoded[0] += len(live)
        yield BatchStep(self._steps, tokens, rows, forward_ms, ms, self.totals)
        for lane in live:
            if (end := lane.ended) is not None:
                yield lane.end(end.reason, end.detail, self.totals.ms)

    def _forward(self) -> tuple[float, int]:
        """Run the last tokens of all rows and sample; returns the forward's milliseconds and its rows."""
        if all(lane.ended for lane in self._live):
            return 0.0, 0
        self._leave()
        begun = time.perf_counter()
        try:
            found = self._rows.forward([lane.tree[lane.node].token for lane in self._live])
        except (MemoryError, RuntimeError) as error:
            check_memory(error, len(self._live))
            raise
        ms = (time.perf_counter() - begun) * 1000
        live = [lane for lane in self._live if lane.ended is None]
        if len(live) < len(self._live):
            found = [row for lane, row in zip(self._live, found, strict=True) if lane.ended is None]
        if live:
            read(live, found)
        self._decoded[1] += 1
        self._decoded[2] += len(live)
        self._decoded[3] += len(self._live) - len(live)
        return ms, len(self._live)


def check_memory(error: Exception, lanes: int) -> None:
    """Say so where the memory is what a failed forward lacks.

    Raises:
        StepError: It is.
    """
    if isinstance(error, MemoryError) or "alloc" in str(error).lower():  # as every backend words it
        raise StepError(
            f"There is not enough memory for {lanes} lanes at once.",
            "Take fewer at once, or shorter prompts.",
        ) from error
