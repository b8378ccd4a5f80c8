"""From logits to a token: an ordered list of stages, then one draw. numpy alone, on one float32 row.

Semantics are those of `mlx_lm.sample_utils`, order included: filters see log-probabilities before the
temperature and mask without renormalizing; temperature 0 is greedy, and no filter matters then. What differs is
the random number: here it is a function of seed, position and re-roll count, so that a fork, a replay and a second
visit draw the same in any order of exploration.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.records import StageReading
from engine.settings import Settings

Row = npt.NDArray[np.float32]
Values = npt.NDArray[np.floating[Any]]
HEAD = 512
"""Tokens ranked for a draw before all of them are: their mass holds the draw nearly always."""


def log_softmax(logits: Row) -> Row:
    """The float32 log-softmax of a row of logits; the sum is taken in float64."""
    shifted = logits - logits.max()
    total = np.exp(shifted, dtype=np.float32).sum(dtype=np.float64)
    return np.asarray(shifted - np.float32(math.log(total)), np.float32)


def uniform(seed: int, position: int, reroll: int, purpose: str = "draw") -> float:
    """The random number of one draw: the first 53 bits of BLAKE2b over seed, position and re-roll.

    Args:
        seed: 0 to 2**64 - 1.
        position: Index in the context of the token to be drawn.
        reroll: How often this draw was made again.
        purpose: Keeps draws for different ends independent.

    Returns:
        A number in [0, 1).
    """
    material = b"".join(each.to_bytes(8, "little") for each in (seed, position, reroll))
    digest = hashlib.blake2b(material, digest_size=8, person=purpose.encode()).digest()
    return (int.from_bytes(digest, "little") >> 11) * 2.0**-53


# ---- stages: a row of log-probabilities in, the same with the cut tokens at -inf out ---------------


def top_p(row: Row, share: float) -> Row:
    """Keep the most probable tokens whose mass first reaches `share` of the whole (nucleus sampling, arXiv:1904.09751).

    Tokens tied with the last one stay, as in `mlx_lm.sample_utils.apply_top_p`.
    """
    ordered = np.sort(row)
    probs = np.exp(ordered)
    above = _mass_above(probs)
    dropped = int((above >= np.float32(share) * (above[0] + probs[0])).sum())
    return np.where(row < ordered[dropped], np.float32(-np.inf), row)


def _mass_above(probs: Row) -> Row:
    """For each place of a rising row the sum of what comes after it, in float32 from the top down, as MLX sums."""
    sums = np.cumsum(probs[::-1], dtype=np.float32)[::-1]
    return np.concatenate([sums[1:], np.zeros(1, np.float32)])


def min_p(row: Row, share: float) -> Row:
    """Keep tokens of at least `share` times the most probable one's probability (arXiv:2407.01082)."""
    return np.where(row < row.max() + np.float32(math.log(share)), np.float32(-np.inf), row)


def top_k(row: Row, k: int) -> Row:
    """Keep the k most probable tokens; of tokens tied at the edge, the lowest ids."""
    if k >= row.size:
        return row
    return _only(row, ranked(row, k))


def _only(row: Row, ids: npt.NDArray[np.intp]) -> Row:
    kept = np.full_like(row, -np.inf)
    kept[ids] = row[ids]
    return kept


def ranked(row: Values, k: int) -> npt.NDArray[np.intp]:
    """Ids of the k largest values, largest first, ties by id.

    Args:
        row: Values of one kind, shape (vocabulary,).
        k: 1 to vocabulary.
    """
    if k >= row.size:
        return np.lexsort((np.arange(row.size), -row))
    edge = np.partition(row, row.size - k)[row.size - k]
    above = np.flatnonzero(row > edge)
    tied = np.flatnonzero(row == edge)[: k - above.size]
    found = np.concatenate([above, tied])
    return found[np.lexsort((found, -row[found]))]


Filter = Callable[[Row], Row]


@dataclass(frozen=True, slots=True)
class Stage:
    """One filter of the pipeline, in its place."""

    name: str
    """As shown beside a token that it cut: `top-p`."""
    run: Filter


def stages(settings: Settings) -> tuple[Stage, ...]:
    """The filters that the settings turn on, in mlx_lm's order: top-p, min-p, top-k."""
    found: list[Stage] = []
    if settings.top_p < 1:
        found.append(Stage("top-p", partial(top_p, share=settings.top_p)))
    if settings.min_p > 0:
        found.append(Stage("min-p", partial(min_p, share=settings.min_p)))
    if settings.top_k > 0:
        found.append(Stage("top-k", partial(top_k, k=settings.top_k)))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Sampled:
    """What the sampler makes of one row of logits."""

    probs: npt.NDArray[np.float64]
    """Final distribution, shape (vocabulary,); sums to 1."""
    cut: npt.NDArray[np.int8]
    """For each token the index in `names` of the stage that cut it, -1 while it is in; shape (vocabulary,)."""
    names: tuple[str, ...]
    readings: tuple[StageReading, ...]
    picked: int
    draw: float | None
    """None for greedy."""
    draw_from: float | None
    draw_to: float | None


def sample(
    logits: Row, logprobs: Row, settings: Settings, draw: float, barred: tuple[int, ...] = ()
) -> Sampled:
    """Run the whole pipeline on one row.

    Args:
        logits: The model's own logits, float32, shape (vocabulary,); not changed.
        logprobs: Their log-softmax, which every caller has at hand; not changed.
        settings: The sampler's settings.
        draw: The random number, from `uniform`; not used by greedy.
        barred: Ids that may not come now (end-of-sequence before min tokens).

    Returns:
        The final distribution, what each stage cut, and the token picked.
    """
    cutter = _Cutter(logits.size)
    row = logprobs
    if barred:
        masked = logits.copy()
        masked[list(barred)] = -np.inf
        cutter.note("min tokens", logprobs, masked)
        row = log_softmax(masked)
    if settings.temp == 0:
        return _greedy(row, cutter)
    for stage in stages(settings):
        filtered = stage.run(row)
        cutter.note(stage.name, row, filtered)
        row = filtered
    return _drawn(_tempered(row, settings.temp), cutter, draw)


class _Cutter:
    """Keeps the account of which stage cut which token, and how much mass went with it."""

    def __init__(self, vocabulary: int) -> None:
        self.cut = np.full(vocabulary, -1, np.int8)
        self.readings: list[StageReading] = []

    def note(self, name: str, before: Row, after: Row) -> None:
        """Account for one stage; `before` holds log-probabilities."""
        gone = np.isneginf(after) & (self.cut < 0) & ~np.isneginf(before)
        self.cut[gone] = len(self.readings)
        total = float(np.exp(before).sum(dtype=np.float64))
        removed = float(np.exp(before[gone]).sum(dtype=np.float64)) / total
        kept = int(after.size - np.isneginf(after).sum())
        self.readings.append(StageReading(name, kept, removed))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(reading.name for reading in self.readings)


def _tempered(row: Row, temp: float) -> npt.NDArray[np.float64]:
    """The distribution of a filtered row at a temperature above 0."""
    scaled = (row - row.max()).astype(np.float64) / temp
    weights = np.exp(scaled)
    return np.asarray(weights / weights.sum(), np.float64)


def _greedy(row: Row, cutter: _Cutter) -> Sampled:
    picked = int(row.argmax())
    probs = np.zeros(row.size, np.float64)
    probs[picked] = 1.0
    after = _only(row, np.array([picked]))
    cutter.note("greedy", row, after)
    return Sampled(probs, cutter.cut, cutter.names, tuple(cutter.readings), picked, None, None, None)


def _drawn(probs: npt.NDArray[np.float64], cutter: _Cutter, draw: float) -> Sampled:
    picked, start, end = invert(probs, draw)
    return Sampled(probs, cutter.cut, cutter.names, tuple(cutter.readings), picked, draw, start, end)


def invert(probs: npt.NDArray[np.float64], draw: float) -> tuple[int, float, float]:
    """The token on which a draw falls, when the tokens are laid end to end, most probable first.

    Args:
        probs: A distribution, shape (vocabulary,).
        draw: In [0, 1).

    Returns:
        Token id, and where its share of the cumulative distribution starts and ends.
    """
    order = ranked(probs, min(HEAD, probs.size))
    sums = np.cumsum(probs[order])
    if draw >= sums[-1] and order.size < probs.size:
        order = ranked(probs, probs.size)
        sums = np.cumsum(probs[order])
    place = int(np.searchsorted(sums, draw, side="right"))
    # The sum may end a rounding below 1: a draw beyond it falls on the last token that can be drawn.
    place = min(place, int(np.flatnonzero(probs[order])[-1]))
    return int(order[place]), float(sums[place] - probs[order[place]]), float(sums[place])
