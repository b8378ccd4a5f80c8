"""The sampler's stages: a name and a pure function of a float32 row, or of its `Masses`. numpy alone.

Penalties return other logits for the whole vocabulary, -inf for the tokens that they bar. Filters get the tokens that
the stages before them left, and return the places of those that stay: every filter acts on the distribution that is
left, so that it keeps its meaning in any order.

Rules for ties and for XTC are those of the program whose order runs:

                  mlx_lm.sample_utils               transformers (logits_process)    llama.cpp (llama-sampler.cpp)
    top-p, ties   all that equal the last stay      of equals the highest ids stay   of equals the lowest ids stay
    top-k, ties   of equals the lowest ids stay     all that equal the last stay     of equals the lowest ids stay
    XTC           above the threshold; those that   has none: mlx_lm's               from the threshold up; the last
                  equal the last stay; spares                                        alone stays; spares none
                  end-of-sequence and newline

Where a program leaves it to its sorting which of some equals stays, it is the ids named here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from engine.sampling.ranking import Ids, Masses, Row, ranked
from engine.setting import GRAMMAR, StageKind
from engine.settings import BY_NAME, ORDERS, STAGES, Settings

Ties = Literal["all", "lowest", "highest"]
"""Rule for the tokens that are tied at a filter's edge: all stay, or as many as it needs, by id."""
MINUS_INFINITY = np.float32(-np.inf)
LOWEST = np.finfo(np.float32).min
"""All that is below it is -inf."""
SAMPLED = 2048
"""Tokens at most of a row that stand for all, to find top-p's likely edge."""
MOST_LEFT = 0.7
"""The part of the mass that top-p cuts which may lie below the first floor, by a sample; the rest is a margin."""
SUM_ERROR = 2.0**-50
"""Bound of what two orders of adding up numbers may differ by, as a share of the sum, for each of the numbers: a sum of
n has n roundings of at most 2**-53 each."""


class StageContext(Struct, frozen=True):
    """Inputs of the stages of one draw in addition to the row."""

    path: tuple[int, ...] = ()
    """The last tokens before the next one, prompt included, newest last: as many as the penalties use."""
    barred: tuple[int, ...] = ()
    """Ids that are excluded now (end-of-sequence before min tokens)."""
    spared: tuple[int, ...] = ()
    """Ids that mlx_lm's XTC never cuts: end-of-sequence and newline, as in mlx_lm.generate."""
    chance: float = 1.0
    """XTC's own random number, in [0, 1)."""
    allowed: npt.NDArray[np.bool_] | None = None
    """True for each token that a grammar allows, shape (vocabulary,); None for all."""


StageFunction = Callable[[Any], npt.NDArray[Any]]
"""A stage that changes logits, and temperature, map a row to a row. A filter maps a row of logprobs (top-p and top-k:
the `Masses` of the logits) to the places of the tokens that stay, in rising order."""


class Stage(Struct, frozen=True):
    """One stage of the pipeline, with its settings."""

    name: str
    """As shown next to a token that it cut: `top-p`."""
    run: StageFunction
    kind: StageKind = "shares"
    spared: tuple[int, ...] = ()
    """Ids that a filter never cuts."""

    @property
    def changes_logits(self) -> bool:
        """True if it changes logits (bias, bar, penalties): greedy runs these stages too, and no others."""
        return self.kind == "logits"


# ---- stages that change logits ----------------------------------------------------------------


def bias(row: Row, values: tuple[tuple[int, float], ...]) -> Row:
    """Add to the logits of some tokens."""
    row = row.copy()
    for token, value in values:
        row[token] += np.float32(value)
    return row


def bar(row: Row, tokens: tuple[int, ...]) -> Row:
    """Cut some tokens."""
    row = row.copy()
    row[list(tokens)] = MINUS_INFINITY
    return row


def allow(row: Row, allowed: npt.NDArray[np.bool_]) -> Row:
    """Cut every token that a grammar forbids.

    Args:
        row: Logits.
        allowed: True for each token that it allows, shape (vocabulary,).
    """
    # np.where takes ten times as long where the allowed tokens are scattered
    ceiling: Row = np.subtract(allowed, np.float32(0.5), dtype=np.float32)
    ceiling *= np.float32(np.inf)
    return np.minimum(row, ceiling, out=ceiling)


def repetition(row: Row, penalty: float, recent: tuple[int, ...]) -> Row:
    """Divide the positive logits of recent tokens by the penalty and multiply the negative ones (arXiv:1909.05858)."""
    row, tokens = row.copy(), list(set(recent))
    chosen = row[tokens]
    row[tokens] = np.where(chosen < 0, chosen * np.float32(penalty), chosen / np.float32(penalty))
    return row


def presence(row: Row, penalty: float, recent: tuple[int, ...]) -> Row:
    """Subtract the penalty from the logit of each recent token, once."""
    row, tokens = row.copy(), list(set(recent))
    row[tokens] -= np.float32(penalty)
    return row


def frequency(row: Row, penalty: float, recent: tuple[int, ...]) -> Row:
    """Subtract the penalty from the logit of each recent token, once for each time that it occurred."""
    row = row.copy()
    for token in recent:
        row[token] -= np.float32(penalty)
    return row


# ---- stages that cut --------------------------------------------------------------------------


def top_p(masses: Masses, share: float, ties: Ties = "all") -> Ids:
    """Keep the fewest of the most probable tokens whose mass reaches `share` of the whole (nucleus, arXiv:1904.09751).

    Masses are computed and summed in float64. `mlx_lm.sample_utils.apply_top_p` and llama.cpp sum in float32: over a
    flat row of 150,000 tokens that moves their edge by some 20 tokens, on a usual row by one token in 1 of 1,000 steps.
    Elsewhere it keeps what mlx_lm keeps.

    Args:
        masses: A row of logits or logprobs, with its probabilities.
        share: Above 0.
        ties: Which of the tokens tied with the last one stay.
    """
    kept, edge, count = _nucleus(masses, share) or _sorted_nucleus(masses.logits, share)
    if ties == "all" or kept.size == count:
        return kept
    tied = masses.logits[kept] == edge
    room, order = count - int(np.count_nonzero(~tied)), np.flatnonzero(tied)
    return np.delete(kept, order[room:] if ties == "lowest" else order[: order.size - room])


def _sorted_nucleus(row: Row, share: float) -> tuple[Ids, np.float32, int]:
    """Top-p's edge from all tokens in their order.

    Returns:
        The tokens down to the edge, those that are tied there included; the edge's value; how many top-p keeps.
    """
    ordered = np.sort(row)
    probs = np.exp(np.subtract(ordered, ordered[-1], dtype=np.float64))
    above = np.concatenate([np.cumsum(probs[:0:-1])[::-1], np.zeros(1)])
    dropped = int((above >= share * (above[0] + probs[0])).sum())
    edge = ordered[dropped]
    return np.flatnonzero(~(row < np.fmax(edge, LOWEST))), edge, row.size - dropped


def _nucleus(masses: Masses, share: float) -> tuple[Ids, np.float32, int] | None:
    """Find top-p's edge as `_sorted_nucleus` does, but sort only the tokens above a floor: 0.1 to 0.5 ms for 152,000
    tokens instead of 3, up to 2 if most of them stay.

    The weights are added up in a different order. None if that could change the result, since two sums are closer than
    the rounding of so many numbers, or if a value is infinite or not a number.
    """
    row, top = masses.logits, float(masses.top)
    if not math.isfinite(top):
        return None
    wanted = share * masses.weight
    for floor in _floors(masses, share):
        upper = np.flatnonzero(row >= floor)
        values = row.take(upper)
        ordered = np.sort(values)[::-1]
        before = np.zeros(ordered.size + 1)
        np.cumsum(np.exp(np.subtract(ordered, top, dtype=np.float64)), out=before[1:])
        if before[-1] > wanted:  # then the edge is one of these
            break
    else:
        return None
    last = int(before.searchsorted(wanted)) - 1
    if np.abs(before[last : last + 2] - wanted).min() <= row.size * SUM_ERROR * masses.weight:
        return None
    edge = ordered[last]
    kept = upper.take(np.flatnonzero(values >= max(edge, LOWEST)))
    return kept, edge, last + 1


def _floors(masses: Masses, share: float) -> Iterator[float]:
    """Lower bounds to try for the logit of top-p's edge, highest first; the last is -inf."""
    row, left = masses.logits, (1 - share) * masses.weight
    step = row.size // SAMPLED + 1
    rising = np.sort(row[::step])
    below = np.cumsum(np.exp(np.subtract(rising, masses.top, dtype=np.float64))) * step
    yield float(rising[min(int(below.searchsorted(MOST_LEFT * left)), rising.size - 1)])
    if left > 0:  # all tokens below this weigh less than `left` together, so the edge is above it
        yield float(masses.top) + math.log(left / row.size)
    yield -math.inf


def min_p(row: Row, share: float, least: int = 1) -> Ids:
    """Keep tokens of at least `share` times the most probable one's probability (arXiv:2407.01082).

    Args:
        row: Logprobs.
        share: Above 0.
        least: The most probable tokens that stay in any case; of tokens tied at that edge the lowest ids. mlx_lm leaves
            the ids to its partition.
    """
    kept = np.flatnonzero(~(row < row.max() + np.float32(math.log(share))))
    return kept if kept.size >= least else np.sort(ranked(row, least))


def top_k(masses: Masses, k: int, ties: Ties = "lowest") -> Ids:
    """Keep the k most probable tokens; of tokens tied at the edge, the lowest ids or all.

    Args:
        masses: A row of logits or logprobs, with its probabilities.
        k: 1 or more.
        ties: `lowest` or `all`.
    """
    row = masses.logits
    if k >= row.size:
        return np.arange(row.size)
    kept = ranked(row, k)
    return np.flatnonzero(row >= row[kept[-1]]) if ties == "all" else np.sort(kept)


def xtc(row: Row, threshold: float) -> Ids:
    """Cut every token above the threshold but the least probable of them (exclude top choices), as mlx_lm does.

    It acts on the probabilities that are left, and only on steps where XTC's own draw is within its probability.
    """
    probs = _shares(row)
    above = probs[probs > np.float32(threshold)]
    return np.flatnonzero(probs <= above.min()) if above.size else np.arange(row.size)


def xtc_llama_cpp(row: Row, threshold: float) -> Ids:
    """XTC as llama.cpp does it: from the threshold up, and of several that are the least probable only one stays."""
    above = int(np.count_nonzero(_shares(row) >= np.float32(threshold)))
    return np.delete(np.arange(row.size), ranked(row, above)[:-1]) if above > 1 else np.arange(row.size)


def _shares(row: Row) -> Row:
    """The float32 softmax of a row."""
    weights = np.exp(row - row.max())
    return np.asarray(weights / weights.sum(), np.float32)


def temperature(row: Row, temp: float) -> Row:
    """Multiply by 1 / temperature: below 1 sharpens, above 1 flattens."""
    return np.asarray(row * np.float32(1 / temp), np.float32)


# ---- the pipeline -----------------------------------------------------------------------------


TOP_P_TIES: dict[str, Ties] = {"mlx-lm": "all", "transformers": "highest", "llama.cpp": "lowest"}
TOP_K_TIES: dict[str, Ties] = {"mlx-lm": "lowest", "transformers": "all", "llama.cpp": "lowest"}


def _penalty(
    function: Callable[..., Row], penalty: float, size: int, context: StageContext
) -> StageFunction | None:
    recent = context.path[-size:]
    return partial(function, penalty=penalty, recent=recent) if recent else None


def _xtc(settings: Settings, context: StageContext) -> StageFunction | None:
    if context.chance > settings.xtc_probability:
        return None
    function = xtc_llama_cpp if settings.sampler_order == "llama.cpp" else xtc
    return partial(function, threshold=settings.xtc_threshold)


Maker = Callable[[Settings, StageContext], StageFunction | None]
STAGE_MAKERS: dict[str, Maker] = {
    GRAMMAR: lambda _, context: (
        partial(allow, allowed=context.allowed) if context.allowed is not None else None
    ),
    "logit-bias": lambda settings, _: partial(bias, values=settings.logit_bias),
    "min-tokens": lambda _, context: partial(bar, tokens=context.barred) if context.barred else None,
    "repetition": lambda settings, context: _penalty(
        repetition, settings.repetition_penalty, settings.repetition_context_size, context
    ),
    "presence": lambda settings, context: _penalty(
        presence, settings.presence_penalty, settings.presence_context_size, context
    ),
    "frequency": lambda settings, context: _penalty(
        frequency, settings.frequency_penalty, settings.frequency_context_size, context
    ),
    "top-p": lambda settings, _: partial(
        top_p, share=settings.top_p, ties=TOP_P_TIES[settings.sampler_order]
    ),
    "min-p": lambda settings, _: partial(min_p, share=settings.min_p, least=settings.min_tokens_to_keep),
    "xtc": _xtc,
    "top-k": lambda settings, _: partial(top_k, k=settings.top_k, ties=TOP_K_TIES[settings.sampler_order]),
    "temperature": lambda settings, _: partial(temperature, temp=settings.temp),
}
"""Functions, by stage name, that return the stage's function for settings that turn it on and a context; None if it
changes nothing there."""


def pipeline(settings: Settings, context: StageContext) -> tuple[Stage, ...]:
    """The stages that the settings turn on, in their order; greedy keeps those alone that change logits."""
    stages = []
    for name, kind, make in _turned_on(settings):
        if (run := make(settings, context)) is not None:
            spares = name == "xtc" and settings.sampler_order != "llama.cpp"
            stages.append(Stage(name, run, kind, context.spared if spares else ()))
    return tuple(stages)


@lru_cache(16)
def _turned_on(settings: Settings) -> tuple[tuple[str, StageKind, Maker], ...]:
    """The stages that settings turn on, and the grammar's, which the context turns on."""
    found: list[tuple[str, StageKind, Maker]] = []
    for name in (GRAMMAR, *ORDERS[settings.sampler_order]):
        kind: StageKind = STAGES[name].kind if name != GRAMMAR else "logits"
        on = name == GRAMMAR or BY_NAME[STAGES[name].setting].on(settings)
        if on and (kind == "logits" or settings.temp):
            found.append((name, kind, STAGE_MAKERS[name]))
    return tuple(found)
