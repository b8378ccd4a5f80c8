"""The sampler on one row of logits: the stages in their order, then one draw. Uses numpy, not MLX.

It differs from `mlx_lm.sample_utils` in the random number, which is a function of seed, position and re-roll count, so
that forks, replays and revisited nodes draw the same numbers in any order of exploration.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from engine.errors import StepError
from engine.protocol import StageReading
from engine.sampling.ranking import Ids, Masses, Row, ranked, sum_without
from engine.sampling.stages import MINUS_INFINITY, Stage, StageContext, pipeline
from engine.settings import Settings

RANKED_HEAD = 512
"""Number of most probable tokens to rank first: the draw nearly always falls among them; otherwise all are ranked."""
EMPTY_CONTEXT = StageContext()
ONE = np.ones(1)
"""Probability of the token that greedy picks."""


def uniform(seed: int, position: int, reroll: int, purpose: str = "draw") -> float:
    """The random number of one draw: the first 53 bits of BLAKE2b over seed, position and re-roll.

    Args:
        seed: Seed from 0 to 2**64 - 1.
        position: Index in the context of the token to draw.
        reroll: Number of times that this draw was repeated.
        purpose: Name that makes draws for different purposes independent.

    Returns:
        A number in [0, 1).
    """
    material = struct.pack("<3Q", seed, position, reroll)
    digest = hashlib.blake2b(material, digest_size=8, person=purpose.encode()).digest()
    return (int.from_bytes(digest, "little") >> 11) * 2.0**-53


class Sampled(Struct, frozen=True):
    """Result of the sampler for one row of logits."""

    ids: Ids | None
    """Ids of the tokens that remain, ascending, usually a few of 150,000; None if all remain."""
    shares: npt.NDArray[np.float64]
    """Probabilities of these tokens; they sum to 1."""
    cut: npt.NDArray[np.int8]
    """Index in `names` of the stage that cut each token, -1 if none did; shape (vocabulary,)."""
    names: tuple[str, ...]
    readings: tuple[StageReading, ...]
    picked: int
    draw: float | None
    """Random number of the draw; None for greedy."""
    draw_from: float | None
    draw_to: float | None

    @property
    def probs(self) -> npt.NDArray[np.float64]:
        """The final distribution, shape (vocabulary,)."""
        if self.ids is None:
            return self.shares
        probs = np.zeros(self.cut.size, np.float64)
        probs[self.ids] = self.shares
        return probs

    def prob(self, token: int) -> float:
        """The final probability of a token."""
        return self.probs_of([token])[0]

    def probs_of(self, tokens: list[int]) -> list[float]:
        """The final probabilities of some tokens."""
        if self.draw is None:
            return [1.0 if token == self.picked else 0.0 for token in tokens]
        places, left = self._places(np.array(tokens, np.intp))
        found: list[float] = (self.shares[places] * left).tolist()
        return found

    def prob_without(self, tokens: Ids) -> float:
        """The final total probability of all tokens except some."""
        places, left = self._places(tokens)
        return sum_without(self.shares.copy(), places[left])

    def _places(self, tokens: Ids) -> tuple[Ids, npt.NDArray[np.bool_]]:
        """Index of each token in `ids`, and True if it is there; otherwise the index is arbitrary."""
        if self.ids is None:
            return tokens, np.ones(tokens.size, np.bool_)
        places = np.minimum(self.ids.searchsorted(tokens), self.ids.size - 1)
        return places, self.ids[places] == tokens


class StageRun:
    """One run of the stages over a row.

    It has two rows of the remaining tokens. Stages that change logits come first in every order and get the logits: the
    model's own, with the changes so far. Filters by probability and the draw get the logprobs, which mlx_lm computes
    once, between penalties and filters, and then filters and scales.

    Args:
        masses: The model's own logits and their probabilities.
    """

    def __init__(self, masses: Masses) -> None:
        self.cut = np.full(masses.logits.size, -1, np.int8)
        self._ids, self._own = masses.unbarred()
        self._logits = self._own.logits
        self._unapplied: list[Stage] = []
        """Temperature stages not applied to the logits yet: most orders never need the logits again."""
        self._row, self._filtered, self._scaled = self._logits, False, False
        """Row for the draw: logits, or logprobs once a filter or temperature ran."""
        self.names: list[str] = []
        """Names of the stages run so far."""
        self.readings: list[StageReading] = []

    @property
    def row(self) -> Row:
        """Row for the draw, shape (vocabulary,); -inf for cut tokens."""
        return self._whole(self._row)

    @property
    def _untouched(self) -> bool:
        """True if no stage has changed, scaled or cut the model's logits."""
        return self._row is self._own.logits

    def _logprobs(self) -> Row:
        """Logprobs of the remaining tokens: a new log-softmax, unless the last change was a filter's."""
        if self._untouched:
            return self._own.logprobs
        if self._filtered:
            return self._row
        made = Masses(self._row).logprobs
        if (live := _live(made)) is not None:
            self._keep(live)
            made = made[live]
        return made

    def _masses(self) -> Masses:
        """Logits of the remaining tokens, after the stages that changed or scaled them, with their probabilities."""
        for stage in self._unapplied:
            self._logits = stage.run(self._logits)
        self._unapplied = []
        if self._logits is self._own.logits:
            return self._own
        scaled = Masses(self._logits)
        # A low temperature may overflow the float32 logits, but not the logprobs.
        return scaled if math.isfinite(scaled.top) else Masses(self._row)

    def apply(self, stage: Stage) -> None:
        """Apply a stage.

        A filter gets newly normalized logprobs if a stage changed or scaled the row after the last filter; otherwise it
        gets that filter's row. Top-p and top-k use the logits, because rounded logprobs have ties that the logits don't
        have. The probability that a stage cuts is computed from the logits before it; after temperature, which rounds
        large logits, from the logprobs.

        Raises:
            StepError: The stage cut all remaining tokens.
        """
        with np.errstate(over="ignore"):  # finfo.min, with which models bar tokens, means -inf
            kept: Ids | None
            if stage.changes_logits:
                masses = self._masses()
                after = stage.run(self._whole(masses.logits))
                self._logits = self._row = after if self._ids is None else after[self._ids]
                kept = _live(self._row)
            elif stage.kind == "order" and self._untouched:
                masses = self._own
                kept = self._with_spared(stage.run(masses), stage)
                if kept.size == self._row.size:  # else only the kept tokens' logprobs are computed
                    self._row = masses.logprobs
            else:
                row = self._logprobs()  # this may drop tokens
                masses = Masses(row) if self._scaled else self._masses()
                if stage.kind == "scale":
                    self._unapplied.append(stage)
                    self._row = stage.run(row)
                    kept = _live(self._row)
                else:
                    if stage.kind == "order":
                        kept = stage.run(self._masses() if self._scaled else masses)
                    else:
                        kept = stage.run(row)
                    kept, self._row = self._with_spared(kept, stage), row
            self._filtered = stage.kind in ("order", "shares")
            self._cut(stage.name, masses, kept)
            self._scaled |= stage.kind == "scale"

    def _with_spared(self, kept: Ids, stage: Stage) -> Ids:
        """Indices that a filter keeps, together with those of the tokens that it never cuts."""
        return np.union1d(kept, self._places(stage.spared)) if stage.spared else kept

    def _cut(self, name: str, masses: Masses, kept: Ids | None) -> None:
        """Record the tokens that a stage cut, and keep the others.

        Args:
            name: The stage's name.
            masses: The tokens before the stage, with their probabilities.
            kept: Indices of the tokens to keep; None for all.
        """
        before, removed = masses.logits.size, 0.0
        left = before if kept is None else kept.size
        if not left:  # min-tokens, or a grammar, if the model itself bars all others
            raise StepError(
                f"{name} cut every token that the stages before it had left.",
                f"Loosen {name}, or turn it off.",
            )
        if kept is not None and left < before:
            removed = masses.without(kept)
            if self._ids is None:
                self.cut.fill(len(self.readings))
                self.cut[kept] = -1
            else:
                self.cut[np.delete(self._ids, kept)] = len(self.readings)
            self._keep(kept)
        self.names.append(name)
        self.readings.append(StageReading(name, left, removed))

    def _keep(self, kept: Ids) -> None:
        """Keep only the tokens at the given indices."""
        self._ids = kept if self._ids is None else self._ids[kept]
        row = self._own.logprobs_of(kept) if self._untouched else self._row[kept]
        self._logits, self._row = self._logits[kept], row

    def _whole(self, row: Row) -> Row:
        """Expand a row of the remaining tokens to the full vocabulary, with -inf for the others."""
        if self._ids is None:
            return row
        whole = np.full(self.cut.size, MINUS_INFINITY)
        whole[self._ids] = row
        return whole

    def _places(self, tokens: tuple[int, ...]) -> Ids:
        """Indices of the given tokens among the remaining ones; tokens that were cut are skipped."""
        if self._ids is None:
            return np.array(tokens, np.intp)
        return np.flatnonzero(np.isin(self._ids, tokens))

    def greedy(self) -> Sampled:
        """Pick the most probable token; of tied tokens the one with the lowest id."""
        place = int(self._row.argmax())
        self._cut("greedy", self._masses(), np.array([place]))
        return self._sampled(ONE, 0, None, None, None)

    def sampled(self, draw: float) -> Sampled:
        """Draw from the remaining tokens."""
        shares = (self._row - self._row.max()).astype(np.float64)
        np.exp(shares, out=shares)
        shares /= shares.sum()
        place, start, end = invert(shares, draw)
        return self._sampled(shares, place, draw, start, end)

    def _sampled(self, shares: npt.NDArray[np.float64], place: int, *draw: float | None) -> Sampled:
        picked = place if self._ids is None else int(self._ids[place])
        names, readings = tuple(self.names), tuple(self.readings)
        return Sampled(self._ids, shares, self.cut, names, readings, picked, *draw)


def _live(row: Row) -> Ids | None:
    """Indices of the values above -inf; None if all are."""
    return np.flatnonzero(row != MINUS_INFINITY) if row.min() == MINUS_INFINITY else None


OnStage = Callable[[Stage, "StageRun"], None]
"""Callback that receives the run after each stage."""


def sample(
    masses: Masses,
    settings: Settings,
    draw: float,
    context: StageContext = EMPTY_CONTEXT,
    watch: OnStage | None = None,
) -> Sampled:
    """Run all stages and the draw on one row.

    Args:
        masses: The model's own logits and their probabilities.
        settings: The sampler's settings.
        draw: Random number from `uniform`; not used by greedy.
        context: Inputs of the stages in addition to the row.
        watch: Receives the run after each stage.

    Returns:
        The final distribution, the stage that cut each token, and the picked token.

    Raises:
        StepError: A stage cut all remaining tokens.
    """
    stages = pipeline(settings, context)
    if settings.temp == 0 and not stages:
        return _most_probable(masses)
    run = StageRun(masses)
    for stage in stages:
        run.apply(stage)
        if watch is not None:
            watch(stage, run)
    return run.greedy() if settings.temp == 0 else run.sampled(draw)


def _most_probable(masses: Masses) -> Sampled:
    """Result of greedy without stages: the same as `StageRun`'s, in 8 us for 4,096 tokens instead of 13."""
    picked = int(masses.logits.argmax())
    ids, cut = np.array([picked]), np.zeros(masses.logits.size, np.int8)
    if masses.barred:
        cut[masses.logprobs == MINUS_INFINITY] = -1  # cut by the model, not by a stage
    cut[picked] = -1
    others = masses.without(ids)
    return Sampled(ids, ONE, cut, ("greedy",), (StageReading("greedy", 1, others),), picked, None, None, None)


def invert(probs: npt.NDArray[np.float64], draw: float) -> tuple[int, float, float]:
    """Invert the cumulative distribution of the tokens, most probable first.

    Args:
        probs: Probabilities, float64, shape (vocabulary,).
        draw: Random number in [0, 1).

    Returns:
        The token id at the draw, and the begin and end of its interval in the cumulative distribution.
    """
    order = ranked(probs, min(RANKED_HEAD, probs.size))
    falling = probs[order]
    sums = np.cumsum(falling)
    if beyond := draw >= sums[-1] and order.size < probs.size:
        falling = np.sort(probs)[::-1]
        sums = np.cumsum(falling)
    place = int(np.searchsorted(sums, draw, side="right"))
    # Rounding may make the sum end below 1: a draw above it gives the last token with a probability above 0.
    place = min(place, int(np.count_nonzero(falling)) - 1)
    share = falling[place]
    # sorting the probabilities takes a third of the time of ranking the ids
    token = (
        np.flatnonzero(probs == share)[place - np.count_nonzero(probs > share)] if beyond else order[place]
    )
    return int(token), float(sums[place] - share), float(sums[place])
