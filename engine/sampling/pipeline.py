"""From logits to a token: the stages in their order, then one draw. numpy alone, on one float32 row.

It differs from `mlx_lm.sample_utils` in the random number: a function of seed, position and re-roll count, so
that a fork, a replay and a second visit draw the same in any order of exploration.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from engine.errors import StepError
from engine.frozen import frozen
from engine.protocol import StageReading
from engine.sampling.ranking import Row, Rows, log_softmax, ranked
from engine.sampling.stages import MINUS_INFINITY, Context, Stage, pipeline, without
from engine.settings import Settings

RANKED_HEAD = 512
"""Tokens ranked for a draw at first: it falls within their mass nearly always; otherwise all are ranked."""
EMPTY_CONTEXT = Context()


def uniform(seed: int, position: int, reroll: int, purpose: str = "draw") -> float:
    """The random number of one draw: the first 53 bits of BLAKE2b over seed, position and re-roll.

    Args:
        seed: 0 to 2**64 - 1.
        position: Index in the context of the token to be drawn.
        reroll: How often this draw was repeated.
        purpose: Makes draws for different purposes independent.

    Returns:
        A number in [0, 1).
    """
    material = struct.pack("<3Q", seed, position, reroll)
    digest = hashlib.blake2b(material, digest_size=8, person=purpose.encode()).digest()
    return (int.from_bytes(digest, "little") >> 11) * 2.0**-53


@frozen
class Sampled:
    """The result of the sampler for one row of logits."""

    probs: npt.NDArray[np.float64]
    """Final distribution, shape (vocabulary,); sums to 1."""
    left: npt.NDArray[np.float64]
    """Those of the tokens that no stage cut, by id: a few of 150,000 as a rule."""
    cut: npt.NDArray[np.int8]
    """For each token the index in `names` of the stage that cut it, -1 for none; shape (vocabulary,)."""
    names: tuple[str, ...]
    readings: tuple[StageReading, ...]
    picked: int
    draw: float | None
    """None for greedy."""
    draw_from: float | None
    draw_to: float | None


class StageRun:
    """One run of the stages over a row.

    It keeps two rows of the same tokens. Stages that change logits, wherever they are in the order, get the logits:
    the model's own, as such stages and temperature changed them, -inf where a filter cut. Filters by probability and
    the draw get the logprobs, which mlx_lm takes once, between penalties and filters, and then cuts and scales.

    Args:
        logits: The model's own, float32, shape (vocabulary,); not changed.
        logprobs: Their log-softmax, which every caller has computed, same shape and dtype; not changed.
    """

    def __init__(self, logits: Row, logprobs: Row) -> None:
        self.row = logits
        """What the draw is made from: logits, or logprobs once a filter or temperature ran."""
        self._logits = logits
        self._own = (logits, logprobs)
        self._behind: list[Stage] = []
        """Filters and temperature that the logits don't have in them yet: most orders never ask for them again."""
        self._logprobs: Row | None = logprobs
        self._live: npt.NDArray[np.bool_] | None = None
        """Which tokens `row` has left, where a stage ran."""
        self._ids: npt.NDArray[np.intp] | None = None
        """Their ids, where a stage cut some: to find them takes as long as three operations on the whole row."""
        self.cut = np.full(logits.size, -1, np.int8)
        self.names: list[str] = []
        """Of the stages that ran."""
        self.readings: list[StageReading] = []

    @property
    def logprobs(self) -> Row:
        """The log-softmax of the current row."""
        if self._logprobs is None:
            self._logprobs = log_softmax(self.row)
        return self._logprobs

    @property
    def logits(self) -> Row:
        """The logits, as stages that change them and temperature left them; -inf where a stage cut."""
        for stage in self._behind:
            if stage.kind == "scale":
                self._logits = stage.run(self._logits)
        if self._behind:
            self._logits, self._behind = without(self._logits, self.cut >= 0), []
        return self._logits

    def apply(self, stage: Stage) -> None:
        """Apply a stage to the row.

        Logprobs are normalized where logits were changed or scaled since; after a filter they aren't, and the filters
        that follow act on what is left. Top-p and top-k go by the logits: rounded logprobs have ties that are none.

        Raises:
            StepError: It cut every token that was left.
        """
        with np.errstate(over="ignore"):  # of finfo.min, with which models bar tokens: it means -inf
            before = self.logits if stage.changes_logits else self.logprobs
            after = self._run(stage, before)
        had = self._live if before is self.row else None
        had, live = before != MINUS_INFINITY if had is None else had, after != MINUS_INFINITY
        kept = int(np.count_nonzero(live))
        gone = None
        if kept < np.count_nonzero(had):  # no stage brings a token back
            gone, self._ids = had ^ live, np.flatnonzero(live)
        self._record_stage(stage.name, before, gone, kept)
        self.row, self._live = after, live
        self._logprobs = after if stage.kind in ("order", "shares") else None

    def _run(self, stage: Stage, before: Row) -> Row:
        match stage.kind:
            case "logits":
                self._logits = after = stage.run(before)
                return after
            case "order":
                after = stage.run(self.logits, of=before)
            case "shares" | "scale":
                after = stage.run(before)
        self._behind.append(stage)
        return after

    def _record_stage(self, name: str, before: Row, gone: npt.NDArray[np.bool_] | None, kept: int) -> None:
        """Record what a stage cut.

        Args:
            name: Of the stage.
            before: The row that it got.
            gone: The tokens that it cut, None for none.
            kept: How many are left.
        """
        removed = 0.0
        if gone is not None:
            first = gone & (self.cut < 0)
            self.cut += first.view(np.int8) * np.int8(len(self.readings) + 1)  # they are at -1
            removed = self._share(before, gone)
        if not kept:  # min-tokens behind a filter that left end-of-sequence alone
            raise StepError(
                f"{name} cut every token that the stages before it had left.",
                "Put it before the filters in --sampler-order, or loosen them.",
            )
        self.names.append(name)
        self.readings.append(StageReading(name, kept, removed))

    def _share(self, before: Row, gone: npt.NDArray[np.bool_]) -> float:
        """The probability of some tokens of a row."""
        logits, logprobs = self._own
        if before is logits:
            return min(1.0, float(np.exp(logprobs) @ gone))  # indexing takes three times as long
        weights = before - before.max()
        np.exp(weights, out=weights)
        whole = weights.sum(dtype=np.float64)
        weights[self._ids] = 0.0  # to take the others out takes three times as long where most are gone
        return float(weights.sum(dtype=np.float64) / whole)

    def greedy(self) -> Sampled:
        """Take the most probable token; of equals the lowest id."""
        picked = int(self.row.argmax())
        others, self._ids = self.row != MINUS_INFINITY, np.array([picked])
        others[picked] = False
        self._record_stage("greedy", self.row, others, 1)
        probs, left = np.zeros(self.row.size, np.float64), np.ones(1)
        probs[picked] = 1.0
        names, readings = tuple(self.names), tuple(self.readings)
        return Sampled(probs, left, self.cut, names, readings, picked, None, None, None)

    def sampled(self, draw: float) -> Sampled:
        """Draw from the tokens that are left."""
        live = np.flatnonzero(self.row > MINUS_INFINITY) if self._ids is None else self._ids
        values = self.row.take(live)
        shares = (values - values.max()).astype(np.float64)
        np.exp(shares, out=shares)
        shares /= shares.sum()
        place, start, end = invert(shares, draw)
        probs = np.zeros(self.row.size, np.float64)
        probs[live] = shares
        names, readings, picked = tuple(self.names), tuple(self.readings), int(live[place])
        return Sampled(probs, shares, self.cut, names, readings, picked, draw, start, end)


OnStage = Callable[[Stage, "StageRun"], None]
"""Receives the run after each stage."""


def sample(
    logits: Row,
    logprobs: Row,
    settings: Settings,
    draw: float,
    context: Context = EMPTY_CONTEXT,
    watch: OnStage | None = None,
    greedy: Sampled | None = None,
) -> Sampled:
    """Run the whole pipeline on one row.

    Args:
        logits: The model's own logits, float32, shape (vocabulary,); not changed.
        logprobs: Their log-softmax; not changed.
        settings: The sampler's settings.
        draw: The random number, from `uniform`; not used by greedy.
        context: What the stages look at in addition to the row.
        watch: Receives the run after each stage.
        greedy: What `most_probable` gave for the row, where several rows were read at once; None to find it here.

    Returns:
        The final distribution, what each stage cut, and the token picked.

    Raises:
        StepError: A stage cut every token that was left.
    """
    stages = pipeline(settings, context)
    if settings.temp == 0 and not stages:
        return most_probable(logits[None], logprobs[None])[0] if greedy is None else greedy
    run = StageRun(logits, logprobs)
    for stage in stages:
        run.apply(stage)
        if watch is not None:
            watch(stage, run)
    return run.greedy() if settings.temp == 0 else run.sampled(draw)


def most_probable(rows: Rows, logprobs: Rows) -> list[Sampled]:
    """What greedy makes of each of some rows where no stage runs, in a few array operations over all.

    Args:
        rows: The model's own logits, shape (places, vocabulary); not changed.
        logprobs: Their log-softmax; not changed.
    """
    picked = rows.argmax(axis=1)
    best = np.arange(len(rows)), picked
    cut = np.zeros(rows.shape, np.int8)
    if rows.min() == MINUS_INFINITY:
        cut[rows == MINUS_INFINITY] = -1  # they were barred before
    cut[best] = -1
    probs = np.zeros(rows.shape)
    probs[best] = 1.0
    shares = np.exp(logprobs)
    shares[best] = 0.0
    ones, left, names, made = np.ones(rows.shape[1], np.float32), np.ones(1), ("greedy",), []
    for row, row_cut, share, token in zip(probs, cut, shares, picked.tolist(), strict=True):
        mass = min(1.0, float(share.dot(ones)))  # row by row: of all at once it adds up otherwise
        readings = (StageReading("greedy", 1, mass),)
        made.append(Sampled(row, left, row_cut, names, readings, token, None, None, None))
    return made


def invert(probs: npt.NDArray[np.float64], draw: float) -> tuple[int, float, float]:
    """Invert the cumulative distribution of the tokens, most probable first.

    Args:
        probs: A distribution, float64, shape (vocabulary,).
        draw: In [0, 1).

    Returns:
        The token id at the draw, and where its share of the cumulative distribution starts and ends.
    """
    order = ranked(probs, min(RANKED_HEAD, probs.size))
    falling = probs[order]
    sums = np.cumsum(falling)
    if beyond := draw >= sums[-1] and order.size < probs.size:
        falling = np.sort(probs)[::-1]
        sums = np.cumsum(falling)
    place = int(np.searchsorted(sums, draw, side="right"))
    # The sum may end a rounding below 1: a draw beyond it falls on the last token that can be drawn.
    place = min(place, int(np.count_nonzero(falling)) - 1)
    share = falling[place]
    # sorting the shares takes a third of the time of ranking the ids
    token = (
        np.flatnonzero(probs == share)[place - np.count_nonzero(probs > share)] if beyond else order[place]
    )
    return int(token), float(sums[place] - share), float(sums[place])
