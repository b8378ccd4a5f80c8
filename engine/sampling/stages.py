"""The sampler's stages: a name and a pure function from a float32 row (vocabulary,) to another. numpy alone.

Semantics are those of `mlx_lm.sample_utils`: penalties change logits; filters write -inf where they cut and don't
renormalize, but every filter acts on the distribution that is left, so that it keeps its meaning in any order.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from engine.sampling.ranking import Row, ranked
from engine.settings import Settings

MINUS_INFINITY = np.float32(-np.inf)


@dataclass(frozen=True, slots=True)
class Context:
    """What the stages of one draw may look at in addition to the row."""

    path: tuple[int, ...] = ()
    """The last tokens before the next one, prompt included, newest last: as many as the penalties look at."""
    barred: tuple[int, ...] = ()
    """Ids that are excluded now (end-of-sequence before min tokens)."""
    spared: tuple[int, ...] = ()
    """Ids that XTC never cuts: end-of-sequence and newline, as in mlx_lm.generate."""
    chance: float = 1.0
    """XTC's own random number, in [0, 1)."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of the pipeline, with its settings."""

    name: str
    """As shown next to a token that it cut: `top-p`."""
    run: Callable[[Row], Row]
    changes_logits: bool = False
    """True for stages that change logits (bias, bar, penalties): greedy runs these too, and no others."""


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


def top_p(row: Row, share: float) -> Row:
    """Keep the most probable tokens whose mass first reaches `share` of the whole (nucleus, arXiv:1904.09751).

    Tokens tied with the last one stay, as in `mlx_lm.sample_utils.apply_top_p`.
    """
    ordered = np.sort(row)
    probs = np.exp(ordered)
    above = _mass_above(probs)
    dropped = int((above >= np.float32(share) * (above[0] + probs[0])).sum())
    return np.where(row < ordered[dropped], MINUS_INFINITY, row)


def _mass_above(probs: Row) -> Row:
    """For each place of a rising row the sum of the places after it, in float32 from the top down, as MLX sums."""
    sums = np.cumsum(probs[::-1], dtype=np.float32)[::-1]
    return np.concatenate([sums[1:], np.zeros(1, np.float32)])


def min_p(row: Row, share: float) -> Row:
    """Keep tokens of at least `share` times the most probable one's probability (arXiv:2407.01082)."""
    return np.where(row < row.max() + np.float32(math.log(share)), MINUS_INFINITY, row)


def top_k(row: Row, k: int) -> Row:
    """Keep the k most probable tokens; of tokens tied at the edge, the lowest ids."""
    if k >= row.size:
        return row
    return only(row, ranked(row, k))


def xtc(row: Row, threshold: float, spared: tuple[int, ...]) -> Row:
    """Cut every token above the threshold but the least probable of them (exclude top choices).

    It acts on the probabilities that are left, and only on steps where XTC's own draw is within its probability.
    """
    weights = np.exp(row - row.max())
    probs = weights / weights.sum()
    above = probs > np.float32(threshold)
    if not above.any():
        return row
    cut = probs > probs[above].min()
    cut[list(spared)] = False
    return np.where(cut, MINUS_INFINITY, row)


def only(row: Row, ids: npt.NDArray[np.intp]) -> Row:
    """The row with every other token cut."""
    kept = np.full_like(row, MINUS_INFINITY)
    kept[ids] = row[ids]
    return kept


def temperature(row: Row, temp: float) -> Row:
    """Multiply by 1 / temperature: below 1 sharpens, above 1 flattens."""
    return np.asarray(row * np.float32(1 / temp), np.float32)


# ---- the pipeline -----------------------------------------------------------------------------


def _logit_bias(settings: Settings, _: Context) -> Callable[[Row], Row] | None:
    return partial(bias, values=settings.logit_bias) if settings.logit_bias else None


def _min_tokens(_: Settings, context: Context) -> Callable[[Row], Row] | None:
    return partial(bar, tokens=context.barred) if context.barred else None


def _penalty(
    function: Callable[..., Row], penalty: float, size: int, context: Context
) -> Callable[[Row], Row] | None:
    recent = context.path[-size:]
    return partial(function, penalty=penalty, recent=recent) if penalty and recent else None


def _repetition(settings: Settings, context: Context) -> Callable[[Row], Row] | None:
    return _penalty(repetition, settings.repetition_penalty, settings.repetition_context_size, context)


def _presence(settings: Settings, context: Context) -> Callable[[Row], Row] | None:
    return _penalty(presence, settings.presence_penalty, settings.presence_context_size, context)


def _frequency(settings: Settings, context: Context) -> Callable[[Row], Row] | None:
    return _penalty(frequency, settings.frequency_penalty, settings.frequency_context_size, context)


def _top_p(settings: Settings, _: Context) -> Callable[[Row], Row] | None:
    return partial(top_p, share=settings.top_p) if settings.top_p < 1 else None


def _min_p(settings: Settings, _: Context) -> Callable[[Row], Row] | None:
    return partial(min_p, share=settings.min_p) if settings.min_p > 0 else None


def _xtc(settings: Settings, context: Context) -> Callable[[Row], Row] | None:
    fires = settings.xtc_probability > 0 and context.chance <= settings.xtc_probability
    return partial(xtc, threshold=settings.xtc_threshold, spared=context.spared) if fires else None


def _top_k(settings: Settings, _: Context) -> Callable[[Row], Row] | None:
    return partial(top_k, k=settings.top_k) if settings.top_k > 0 else None


def _temperature(settings: Settings, _: Context) -> Callable[[Row], Row] | None:
    return partial(temperature, temp=settings.temp) if settings.temp not in (0, 1) else None


Maker = Callable[[Settings, Context], "Callable[[Row], Row] | None"]
STAGE_MAKERS: dict[str, tuple[Maker, bool]] = {
    "logit-bias": (_logit_bias, True),
    "min-tokens": (_min_tokens, True),
    "repetition": (_repetition, True),
    "presence": (_presence, True),
    "frequency": (_frequency, True),
    "top-p": (_top_p, False),
    "min-p": (_min_p, False),
    "xtc": (_xtc, False),
    "top-k": (_top_k, False),
    "temperature": (_temperature, False),
}
"""By stage name: what makes its function from settings and context, None where it is off; if it changes logits."""


def pipeline(settings: Settings, context: Context) -> tuple[Stage, ...]:
    """The stages that the settings turn on, in their order; greedy keeps those alone that change logits."""
    stages: list[Stage] = []
    for name in settings.sampler_order:
        maker, changes_logits = STAGE_MAKERS[name]
        run = maker(settings, context)
        if run is not None and (changes_logits or settings.temp != 0):
            stages.append(Stage(name, run, changes_logits))
    return tuple(stages)
