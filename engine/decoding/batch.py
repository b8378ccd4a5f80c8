"""Batches: lanes, each with its own prompt, settings and draws, that take their steps together; and many draws of one
prompt.

A step takes the token that each live lane drew, and runs the tokens of all lanes that continue in one forward pass. A
lane that ends frees its row for a waiting lane; in a static batch it keeps the row until all lanes have ended, and the
row's forward passes are wasted. A batch has its own caches and trees: the session doesn't change.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import zip_longest

import numpy as np
from msgspec.structs import replace

from engine import protocol
from engine.cache import padded
from engine.decoding.rows import PaddedRows, Rows, SequentialRows, enough_memory, rows_of
from engine.errors import Cancelled, StepError
from engine.logits.node_sampler import Position, Wide
from engine.model.facts import free_bytes
from engine.model.forward import Runner, rounding_of
from engine.model.tokens import Tokens
from engine.protocol import Distribution, LaneEnded, LaneToken, Record
from engine.sampling.ranking import Row, blocks, ranked_rows
from engine.sampling.ranking import Rows as Logits
from engine.session.context import Context
from engine.session.conversation import encoded
from engine.session.node_records import Continuation, window_full
from engine.session.session import Session, run_at
from engine.setting import check
from engine.settings import BY_NAME, Settings, differences
from engine.task import Stopped, Task

LANE_CANDIDATES = 5
"""Largest number of candidates in the record of a lane's token; 40 lanes have as many as 10 steps of a session."""


class Lane:
    """One prompt of a batch.

    Args:
        opened: Number, prompt and re-roll count.
        path: The prompt and its continuation.
        limit: Maximum number of tokens; None for that of the settings.
    """

    def __init__(self, opened: protocol.LaneOpened, path: Continuation, limit: int | None = None) -> None:
        self.opened, self.path, self.number, self.limit = opened, path, opened.lane, limit
        self.position: Position
        """The logits after the last token, and the token drawn from them; set once the prompt is read."""
        self.taken: list[LaneToken] = []
        self.choices: list[Distribution] = []
        """The distributions that the tokens taken and the next one were drawn from."""
        self.ended: LaneEnded | None = None

    def end(self, reason: protocol.LaneEnd, detail: str, ms: float) -> LaneEnded:
        self.ended = LaneEnded(self.number, reason, detail, self.path.count, ms)
        return self.ended

    def take(self, ms: float) -> None:
        """Take the token that was drawn, and end the lane if that reached a stop or the limit."""
        path, drawn = self.path, self.position.next
        path.take(drawn.picked, "greedy" if drawn.draw is None else "sampled")
        if (stop := path.stop()) is not None:
            self.end(stop.reason, stop.detail, ms)
        elif path.count == self.limit:
            self.end("length", "", ms)

    def record(self, before: Position, kv: protocol.LaneKV | None) -> LaneToken:
        """The record of the last token.

        Args:
            before: The logits that it was drawn from.
            kv: The KV of the lane; None if it ended and has no row any more.
        """
        taken = next(each for each in before.next.candidates if each.id == before.next.picked)
        made = LaneToken(
            lane=self.number,
            index=len(self.taken),
            position=self.path.tree[self.path.node].depth - 1,
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


def read(lanes: Sequence[Lane], rows: Sequence[Row] | Logits) -> None:
    """Sample from the logits after each lane's last token, and read them, for all lanes at once.

    Raises:
        StepError: A sampler can't continue, or the model's logits are not numbers.
    """
    waiting = iter(lanes)
    for block in blocks(rows):
        some = [next(waiting) for _ in range(len(block))]
        logits = [lane.path.sample(row) for lane, row in zip(some, block, strict=True)]
        counts = [min(LANE_CANDIDATES, lane.path.settings.candidates) for lane in some]
        best = ranked_rows(block, max(counts))
        for lane, each, count, ids in zip(some, logits, counts, best, strict=True):
            lane.position = lane.path.node_reader.position(each, count, ids)
            lane.choices.append(lane.position.next)


class BatchRun:
    """One batch.

    Args:
        rows: Rows in which the lanes run.
        size: Number of lanes at once.
        static: True for a static batch; see the module.
    """

    def __init__(self, rows: Rows, size: int, static: bool = False) -> None:
        self._rows, self._size = rows, size
        self._static = static and rows.at_once
        self.lanes: list[Lane] = []
        """All lanes, by number."""
        self._live: list[Lane] = []
        """Lanes that have a row, in the order of the rows."""
        self._joining: list[Lane] = []
        """Lanes whose prompts are being read."""
        self._waiting: deque[Lane] = deque()
        self._steps = 0
        self.totals = protocol.BatchTotals()
        self.records = self.run()
        """Iterator of the next records."""

    def add(self, lane: Lane) -> None:
        """Add a lane, which waits for a row."""
        self.lanes.append(lane)
        self._waiting.append(lane)

    def remove(self, number: int) -> LaneEnded:
        """End a lane; its row leaves before the next step.

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
        """True if no lane is running or waiting."""
        return not self._waiting and all(lane.ended for lane in (*self._joining, *self._live))

    def _count(self, **more: float) -> None:
        sums = {name: getattr(self.totals, name) + amount for name, amount in more.items()}
        self.totals = replace(self.totals, **sums)

    def run(self) -> Iterator[Record | None]:
        """Run until all lanes have ended; a caller may pause at any record, and add and remove lanes meanwhile.

        Yields:
            Records; None before each step.

        Raises:
            StepError: A sampler can't continue, there is not enough memory, or the logits are not numbers.
        """
        together = self._static or not self._rows.joins
        while True:
            self._leave()
            while self._waiting and (not self._live if together else len(self._live) < self._size):
                yield from self._admit()
                self._leave()
            if not self._live:
                break
            yield None
            self._leave()  # rows of lanes that were removed meanwhile
            if self._live:
                yield from self._step()
        yield protocol.BatchEnded(self.totals)

    def _leave(self) -> None:
        """Drop the rows of lanes that ended; in a static batch only once all have, or if the user removed them."""
        all_ended = all(lane.ended for lane in self._live)
        places = [
            place
            for place, lane in enumerate(self._live)
            if lane.ended is None or (self._static and not all_ended and lane.ended.reason != "removed")
        ]
        if len(places) < len(self._live):
            self._rows.keep(places)
            self._live = [self._live[place] for place in places]

    def _admit(self) -> Iterator[Record]:
        """Read the prompts of waiting lanes, as many as there are free rows, and sample after each."""
        room = min(self._size - len(self._live), len(self._waiting))
        group = self._joining = [self._waiting.popleft() for _ in range(room)]
        numbers = tuple(lane.number for lane in group)
        prompts = [lane.path.tree.tokens(lane.path.begin) for lane in group]
        longest, at_once = max(map(len, prompts)), self._rows.at_once
        yield protocol.LanesJoined(numbers, tuple(longest - len(ids) if at_once else 0 for ids in prompts))
        columns = longest if at_once else sum(map(len, prompts))
        with _enough_memory(group):
            for done, tokens, padding, ms in self._rows.begin(prompts):
                self._count(prompt_tokens=tokens, padding=padding, prefill_ms=ms)
                yield protocol.LanesPrefilled(numbers, done, columns, tokens, padding, ms)
        self._live, self._joining = [*self._live, *group], []
        held = self._rows.read()[-len(group) :]
        for lane, row, kv in zip(group, self._rows.logits, held, strict=True):
            if lane.ended is not None:  # removed while its prompt was read
                continue
            begun = time.perf_counter()
            read([lane], [row])
            self._count(decode_ms=(time.perf_counter() - begun) * 1000)
            yield protocol.LaneStarted(lane.number, lane.position.next, kv, self.totals.ms)
            if (full := window_full(lane.path, lane.path.node)) is not None:
                yield lane.end(full.reason, full.detail, self.totals.ms)

    def _step(self) -> Iterator[Record]:
        """Take the token of each live lane, run those of the lanes that continue, and sample after each."""
        begun = time.perf_counter()
        live = [lane for lane in self._live if lane.ended is None]
        before = [lane.position for lane in live]
        for lane in live:
            lane.take(self.totals.ms)
        forward_ms, kv = 0.0, dict[int, protocol.LaneKV]()
        if not all(lane.ended for lane in self._live):
            self._leave()
            forward_begun = time.perf_counter()
            with _enough_memory(self._live):
                rows = self._rows.forward([lane.path.tree[lane.path.node].token for lane in self._live])
            forward_ms = (time.perf_counter() - forward_begun) * 1000
            going = [lane for lane in self._live if lane.ended is None]
            if len(going) < len(self._live):
                rows = [row for lane, row in zip(self._live, rows, strict=True) if lane.ended is None]
            read(going, rows)
            self._count(forwards=1, rows=len(going), rows_after_end=len(self._live) - len(going))
            kv = dict(zip((lane.number for lane in self._live), self._rows.read(), strict=True))
        tokens = tuple(
            lane.record(position, kv.get(lane.number)) for lane, position in zip(live, before, strict=True)
        )
        self._steps += 1
        ms = (time.perf_counter() - begun) * 1000
        self._count(tokens=len(live), decode_ms=ms)
        yield protocol.BatchStep(self._steps, tokens, len(kv), forward_ms, ms, self.totals)
        for lane in live:
            if (end := lane.ended) is not None:
                yield lane.end(end.reason, end.detail, self.totals.ms)


def _enough_memory(lanes: Sequence[Lane]) -> AbstractContextManager[None]:
    return enough_memory(
        f"There is not enough memory for {len(lanes)} lanes at once.",
        "Take fewer at once, or shorter prompts.",
    )


# ---- the start of a batch: encoded prompts, rows for them, and the memory that they need --------

LARGEST = 256
"""Maximum number of lanes at once."""
MEMORY_SHARE = 0.8
"""Share of the free memory that the KV of a batch may take."""
PROBE = 12
"""Number of tokens of the longer of the two prompts that test padded rows; the other has a third of it."""


def open_lanes(session: Session, prompts: Sequence[protocol.LanePrompt], first: int) -> list[Lane]:
    """Encode prompts and make their lanes. Each lane has its own tree: if one prompt begins with another, the same
    tokens may be a completion in one lane and a prompt in the other.

    Args:
        session: Session of the model, with the settings of prompts that have none; not changed.
        prompts: One per lane.
        first: Number of the first lane.

    Raises:
        PromptError: A prompt can't be encoded, is empty or too long.
        SettingsError: A setting is out of its range, or a grammar is invalid.
    """
    made: list[Lane] = []
    for number, prompt in enumerate(prompts, first):
        known = encoded(
            session, protocol.PreviewPrompt(prompt.text, prompt.chat, prompt.system, options=prompt.options)
        )
        session.check_prompt(known.ids, 0)
        settings = check(prompt.settings or session.settings, session.facts.vocabulary)
        path = Continuation(session.tokens, session.facts, settings, known.ids)
        if settings.grammar is not None:
            path.node_reader.grammars.compiled(settings.grammar)
        own = tuple(_own(session.settings, settings))
        opened = protocol.LaneOpened(number, known.text, tuple(known.ids), settings.seed, 0, known.notes, own)
        made.append(Lane(opened, path))
    return made


def _own(usual: Settings, own: Settings) -> Iterator[str]:
    """The settings in which a lane differs from the session, in words."""
    for name, (_, value) in differences(usual, own).items():
        if name == "grammar":
            yield f"grammar {own.grammar.summary}" if own.grammar is not None else "no grammar"
        elif name != "seed":
            yield f"{BY_NAME[name].label} {BY_NAME[name].format(value) or 'none'}"


def not_together(runner: Runner, dtype: str, ids: Sequence[int]) -> str:
    """The reason why a model can't run several lanes together; empty if it can.

    Wrong KV raises no error, and nothing shows whether a model's own code supports rows of different padding: so two
    prompts run both ways, and their logits are compared. This takes some short forward passes.

    Args:
        runner: Runner of the model.
        dtype: Dtype that the model computes in.
        ids: Tokens of the test prompts.
    """
    kv = runner.fresh().kv
    if why := next(filter(None, map(padded.refusal, kv.caches)), ""):
        return why
    if kv.chunks_matter:
        return "its KV cache is quantized, which mlx_lm does only for a single sequence"
    longer = (list(ids) * PROBE)[:PROBE]
    prompts = [longer, longer[: PROBE // 3]]

    def tried(rows: Rows) -> list[Row]:
        """The logits after each prompt, and after one more token."""
        for _ in rows.begin(prompts):
            pass
        return [*rows.logits, *rows.forward([prompt[0] for prompt in prompts])]

    try:
        batched = tried(PaddedRows(runner))
    except (ValueError, TypeError, RuntimeError, IndexError, AttributeError) as error:
        return f"the model's code takes no rows of different lengths ({type(error).__name__})"
    alone = tried(SequentialRows(runner))
    difference = max(float(np.abs(one - other).max()) for one, other in zip(batched, alone, strict=True))
    if difference <= rounding_of(np.concatenate(alone), dtype):
        return ""
    return f"batched, the model's logits differ by {difference:.2g}, which rounding doesn't explain"


def check_room(runner: Runner, lanes: Sequence[tuple[int, int]], size: int) -> None:
    """Refuse a batch whose KV doesn't fit into the free memory.

    Args:
        runner: Runner of the model; a forward pass of one token shows the bytes per token.
        lanes: For each lane the number of tokens of its prompt, and its maximum number of new tokens.
        size: Number of lanes at once.

    Raises:
        StepError: The KV doesn't fit, or the number of lanes is out of range.
    """
    if not 1 <= size <= LARGEST:
        raise StepError(f"{size} lanes at once are out of range.", f"Give 1 to {LARGEST}.")
    free = free_bytes()
    probe = runner.fresh()
    probe.forward(0)
    at_once = min(size, len(lanes))
    columns = max(map(sum, lanes), default=0)
    needed = at_once * columns * (probe.kv.bytes_per_token() or 0)
    if free is not None and needed > MEMORY_SHARE * free:
        raise StepError(
            f"{at_once} lanes of up to {columns:,} tokens need {needed / 2**30:.1f} GiB of KV; "
            f"{free / 2**30:.1f} GiB are free.",
            "Take fewer lanes at once, or lower max tokens.",
        )


# ---- each lane compared with its prompt run alone: the token ids, and the times -----------------


def compare(
    lanes: Sequence[Lane], together_ms: float, runner: Runner, stopped: Stopped
) -> Iterator[protocol.Measuring | protocol.LaneCompared | protocol.BatchCompared]:
    """Run the prompts of a batch alone, one after another, with the same settings and draws.

    Args:
        lanes: Lanes that ended and were not removed.
        together_ms: Milliseconds that the batch took.
        runner: Runner of the model.
        stopped: Polled after each token.

    Yields:
        A record for each lane, and one for all.

    Raises:
        Cancelled: `stopped` returned True.
    """
    tokens, ms = 0, 0.0
    for done, lane in enumerate(lanes):
        yield protocol.Measuring("CompareBatch", done, len(lanes), f"lane {lane.number} alone")
        path = Continuation.after(lane.path, lane.path.begin, lane.path.settings)
        path.reroll = lane.path.reroll
        alone, run = Lane(lane.opened, path, lane.limit), BatchRun(SequentialRows(runner), 1)
        run.add(alone)
        roundings: list[float] = []
        for _ in run.run():
            if stopped():
                raise Cancelled
            if len(roundings) < len(alone.choices):
                roundings.append(rounding_of(alone.position.node_logits.row, path.facts.dtype))
        tokens, ms = tokens + len(alone.taken), ms + run.totals.ms
        yield compared(lane, alone, roundings, run.totals.ms)
    batched = sum(len(lane.taken) for lane in lanes)
    yield protocol.BatchCompared(len(lanes), batched, together_ms, tokens, ms)


def compared(lane: Lane, alone: Lane, roundings: Sequence[float], ms: float) -> protocol.LaneCompared:
    """Compare a lane with its prompt run alone.

    Args:
        lane: The lane of the batch.
        alone: The same prompt, run alone.
        roundings: For each choice of `alone`, the most by which rounding may change its logits.
        ms: Milliseconds that `alone` took.
    """
    largest = rounding = 0.0
    difference = None
    for index, (one, other) in enumerate(zip_longest(lane.taken, alone.taken)):
        if index < min(len(lane.choices), len(alone.choices)):
            mine, theirs = lane.choices[index], alone.choices[index]
            largest = max(largest, _above(mine, theirs), _above(theirs, mine))
            rounding = max(rounding, 2 * roundings[index])
        if one is None or other is None or one.id != other.id:
            choice = alone.choices[min(index, len(alone.choices) - 1)]
            values = {each.id: each.logprob for each in choice.candidates}
            # tokens that are not candidates are below this
            least = choice.candidates[:LANE_CANDIDATES][-1].logprob
            ids = one.id if one else -1, other.id if other else -1
            texts = one.text if one else "", other.text if other else ""
            gap = abs(values.get(ids[1], least) - values.get(ids[0], least)) if one and other else 0.0
            difference = protocol.LaneDifference(index, *ids, *texts, gap)
            break
    return protocol.LaneCompared(lane.number, len(alone.taken), difference, largest, rounding, ms)


def _above(one: Distribution, other: Distribution) -> float:
    """The largest difference of a candidate's logprob in `one` from that in `other`; a token that `other` doesn't list
    is taken to be as probable as the last of its best ones."""
    values = {each.id: each.logprob for each in other.candidates}
    most = other.candidates[:LANE_CANDIDATES][-1].logprob
    return max(
        0.0,
        *(
            abs(each.logprob - values[each.id]) if each.id in values else each.logprob - most
            for each in one.candidates
            if each.logprob > -math.inf
        ),
    )


# ---- many draws of one prompt: how often each token was drawn, compared with its probability --------
# Draw k is the one that k re-rolls give: its random numbers are a function of seed, position and k, so that the draws
# can be repeated. The frequencies have Wilson's interval (E. B. Wilson, 1927: Probable inference, the law of
# succession, and statistical inference, Journal of the American Statistical Association 22), which is also valid for
# few draws and for probabilities near 0 and 1. The chi-square is Pearson's (1900), over cells of five or more expected
# draws.

MOST = 100_000
"""Maximum number of draws."""
LISTED = 40
"""Maximum number of tokens in the table."""
CELL = 5.0
"""Smallest expected number of draws in a cell of the chi-square, as is usual (W. G. Cochran, 1954)."""
Z = 1.959963984540054
"""Standard deviations of the normal distribution that contain 95 %."""
UNLIMITED = 2**31 - 1
"""`max_tokens` in the settings of a continuation, which begins within a completion and has its own limit."""


def wilson(count: int, draws: int, z: float = Z) -> tuple[float, float]:
    """Wilson's interval for a probability.

    Args:
        count: Number of draws with the event.
        draws: Number of all draws, at least 1.
        z: Standard deviations on both sides.
    """
    share, square = count / draws, z * z / draws
    middle = share + square / 2
    half = z * math.sqrt(share * (1 - share) / draws + square / (4 * draws))
    low, high = (middle - half) / (1 + square), (middle + half) / (1 + square)
    # 0 and 1 are exact ends, which the formula would round
    return (low if count else 0.0), (high if count < draws else 1.0)


def chi_square_tail(value: float, degrees: int) -> float:
    """The chance that a chi-square variable exceeds a value: the upper regularized incomplete gamma function.

    By its series below the mean and its continued fraction above (Press et al., Numerical Recipes, section 6.2).

    Args:
        value: The value, at least 0.
        degrees: Degrees of freedom, at least 1.
    """
    a, x = degrees / 2, value / 2
    if x <= 0:
        return 1.0
    if math.isinf(x):
        return 0.0
    scale = math.exp(-x + a * math.log(x) - math.lgamma(a))
    if x < a + 1:
        term = total = 1 / a
        for step in range(1, 10_000):
            term *= x / (a + step)
            total += term
            if term < total * 1e-15:
                break
        return max(0.0, 1 - scale * total)
    b = x + 1 - a
    c, d = 1e300, 1 / b
    fraction = d
    for step in range(1, 10_000):
        factor = step * (a - step)
        b += 2
        d = 1 / (factor * d + b)
        c = b + factor / c
        fraction *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return scale * fraction


def count_draws(node: int, probs: Wide, picked: Sequence[int], tokens: Tokens) -> protocol.DrawsCounted:
    """The table of the first tokens of some draws.

    Args:
        node: Node that the draws follow.
        probs: The probability of each token to be drawn, shape (vocabulary,).
        picked: The tokens that were drawn, one per draw.
        tokens: The model's tokenizer.
    """
    draws, counts = len(picked), Counter(picked)
    likely = np.argsort(-probs, kind="stable")[:LISTED].tolist()
    listed = sorted({*likely, *(token for token, _ in counts.most_common(LISTED))}, key=lambda id: -probs[id])
    listed = [token for token in listed if counts[token] or probs[token] * draws >= 1][:LISTED]
    outcomes = tuple(
        protocol.DrawnToken(
            token, tokens.text(token)[0], float(probs[token]), counts[token], *wilson(counts[token], draws)
        )
        for token in listed
    )
    value, degrees = _chi_square(probs.tolist(), counts, draws)
    others = draws - sum(each.count for each in outcomes)
    rest = max(0.0, 1.0 - sum(each.prob for each in outcomes))
    chance = chi_square_tail(value, degrees) if degrees else 1.0
    return protocol.DrawsCounted(node, draws, outcomes, others, rest, value, degrees, chance)


def _chi_square(probs: Sequence[float], counts: Counter[int], draws: int) -> tuple[float, int]:
    """Pearson's chi-square and its degrees of freedom."""
    cells = [(prob * draws, counts[token]) for token, prob in enumerate(probs) if prob * draws >= CELL]
    expected, count = draws - sum(cell[0] for cell in cells), draws - sum(cell[1] for cell in cells)
    if count and expected <= 1e-9 * draws:  # a token was drawn that the sampler can't draw
        return math.inf, max(1, len(cells) - 1)
    if expected < CELL and cells:  # too few for a cell: they join the smallest one
        least = cells.pop(min(range(len(cells)), key=lambda place: cells[place][0]))
        expected, count = expected + least[0], count + least[1]
    cells.append((expected, count))
    value = sum((count - expected) ** 2 / expected for expected, count in cells)
    return value, len(cells) - 1


# ---- the commands ------------------------------------------------------------------------------


def _batch(context: Context) -> BatchRun:
    """The last batch; its caches are kept until the next batch or model.

    Raises:
        StepError: There is no batch.
    """
    if BatchRun not in context.of_model:
        raise StepError("There is no batch to continue.", "Start one.")
    run: BatchRun = context.of_model[BatchRun]
    return run


def start_batch(context: Context, command: protocol.StartBatch, task: Task) -> Iterator[Record]:
    session, kept = context.session, context.of_model
    if not command.prompts:
        raise StepError("A batch needs at least one prompt.", "Give one.")
    kept.pop(BatchRun, None)  # frees its memory before the next one takes more
    lanes = open_lanes(session, command.prompts, 0)
    runner = session.runner.fresh()
    check_room(
        runner, [(len(lane.opened.ids), lane.path.settings.max_tokens) for lane in lanes], command.size
    )
    if not_together not in kept:
        kept[not_together] = not_together(runner, session.facts.dtype, lanes[0].opened.ids)
    rows: Rows = PaddedRows(runner)
    if single := kept[not_together]:
        rows = SequentialRows(runner, f"The lanes run one after another: {single}.")
    run = kept[BatchRun] = BatchRun(rows, command.size, command.static)
    for lane in lanes:
        run.add(lane)
    opened = tuple(lane.opened for lane in lanes)
    yield protocol.BatchOpened(opened, command.size, command.static, None, rows.note)
    yield from advance(context, command.steps, task)


def advance_batch(context: Context, command: protocol.AdvanceBatch, task: Task) -> Iterator[Record]:
    if _batch(context).over:
        raise StepError("All lanes have ended.", "Add a prompt, or start another batch.")
    yield from advance(context, command.steps, task)


def advance(context: Context, steps: int | None, task: Task) -> Iterator[Record]:
    """Continue until steps are taken, all lanes have ended, or the command is cancelled; a failure ends the batch."""
    run, kept = _batch(context), context.of_model
    del kept[BatchRun]
    for record in run.records:
        if isinstance(record, protocol.BatchEnded):
            yield record
            kept[BatchRun], run.records = run, run.run()  # lanes that are added later make it continue
            return
        kept[BatchRun] = run
        if record is not None:
            yield record
        if record is None and steps == 0:
            return
        if isinstance(record, protocol.BatchStep) and steps is not None:
            steps -= 1
        if task.cancel.is_set():
            raise Cancelled
        del kept[BatchRun]


def add_lanes(context: Context, command: protocol.AddLanes, task: Task) -> Iterator[Record]:
    run = _batch(context)
    if not all(lane.opened.ids for lane in run.lanes):
        raise StepError("These lanes are draws of one prompt.", "Start a batch of prompts.")
    lanes = open_lanes(context.session, command.prompts, len(run.lanes))
    for lane in lanes:
        run.add(lane)
    yield protocol.LanesAdded(tuple(lane.opened for lane in lanes))


def remove_lane(context: Context, command: protocol.RemoveLane, task: Task) -> Iterator[Record]:
    yield _batch(context).remove(command.lane)


def compare_batch(context: Context, command: protocol.CompareBatch, task: Task) -> Iterator[Record]:
    """Run each lane's prompt alone, and compare."""
    run = _batch(context)
    if not run.over:
        raise StepError("Some lanes have not ended.", "Run the batch to its end first.")
    lanes = [lane for lane in run.lanes if lane.ended is not None and lane.ended.reason != "removed"]
    yield from compare(lanes, run.totals.ms, context.session.runner.fresh(), task.cancel.is_set)


def draw_many(context: Context, command: protocol.DrawMany, task: Task) -> Iterator[Record]:
    """Draw many times after a node of the session's tree, and continue each draw in a batch.

    Raises:
        StepError: There is no prompt or no such node, or a number is out of range.
        Cancelled: The command was cancelled.
    """
    session = context.session
    node, count = session.node if command.node is None else command.node, command.count
    if not 1 <= count <= MOST or command.tokens < 1:
        raise StepError(
            f"{count:,} draws of {command.tokens} tokens are out of range.",
            f"Give 1 to {MOST:,} draws, of one token or more each.",
        )
    session.position  # noqa: B018 - raises if there is no prompt
    session.check_node(node)
    if command.tokens > 1:
        context.of_model.pop(BatchRun, None)
        room = [(session.tree[node].depth, command.tokens)] * count
        check_room(session.runner.fresh(), room, command.size)
    detached = run_at(session, node, task.cancel.is_set)
    settings = replace(session.settings, max_tokens=UNLIMITED)
    path = Continuation.after(session, node, settings)
    probs = path.node_reader.expected(path.node, detached.row, settings)
    picked = [path.rerolled(number).sample(detached.row).sampled.picked for number in range(count)]
    tossed = 0 < settings.xtc_probability < 1 and settings.temp > 0
    yield replace(count_draws(node, probs, picked, session.tokens), tossed=tossed)
    if command.tokens == 1:
        return
    rows = rows_of(detached.runner.copy(), detached.row)
    run = context.of_model[BatchRun] = BatchRun(rows, command.size)
    opened = [protocol.LaneOpened(number, "", (), settings.seed, number) for number in range(count)]
    for lane in opened:
        run.add(Lane(lane, path.rerolled(lane.lane), command.tokens))
    note = " ".join(filter(None, (session.cut_note(node), rows.note)))
    yield protocol.BatchOpened(tuple(opened), command.size, False, node, note)
    yield from advance(context, None, task)
