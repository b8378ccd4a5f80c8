"""The next token as the device itself would pick it, so that the forward after it begins before the row is read.

It is the sampler of `engine.sampling` in float32, with the draw's own random number, over the most probable tokens: in
every order of the stages what they keep is a beginning of these. A token that it misses costs time and nothing else:
the sampler's float64 on the host decides, and a forward of another token is taken back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import mlx.core as mx

from engine.model.forward import Guess
from engine.sampling.pipeline import uniform
from engine.sampling.stages import TOP_K_TIES, TOP_P_TIES
from engine.settings import BY_NAME, ORDERS, STAGES, Settings

HEAD = 1024
"""The most probable tokens that are drawn from. Selecting and sorting them takes 0.1 ms of 4,096 and 1.3 ms of 152,000
tokens on a CPU, where sorting all takes 0.3 and 20 ms."""


def pays(settings: Settings) -> bool:
    """True where a guess saves more time than it takes: on a CPU that of a draw takes as much as it saves.

    On a quiet machine of two cores a run of `pocket` had 1.00 of the speed of mlx_lm's loop with it and 1.01 without,
    at temperature 0.8 and top-p 0.95; greedy it had 1.05 and 0.96.
    """
    return settings.temp == 0 or mx.default_device() != mx.Device(mx.cpu)


def guess_of(settings: Settings) -> Guess | None:
    """What guesses the sampler's choice on the device; None where a grammar, a penalty, a bias or XTC takes part."""
    stages = [name for name in ORDERS[settings.sampler_order] if BY_NAME[STAGES[name].setting].on(settings)]
    if settings.temp == 0:
        stages = [name for name in stages if STAGES[name].kind == "logits"]
    if settings.grammar is not None or not _STAGES.keys() >= set(stages):
        return None
    return _greedy if settings.temp == 0 else _drawn(settings, stages)


def _greedy(row: mx.array, position: int) -> mx.array:
    return mx.argmax(row)


def _drawn(settings: Settings, stages: list[str]) -> Guess:
    def guess(row: mx.array, position: int) -> mx.array:
        count = min(HEAD, row.size)
        parts = mx.argpartition(row, row.size - count)
        ids = mx.sort(parts[row.size - count :])
        ids = ids[mx.argsort(-row[ids])]  # of equals the lowest id first
        head = _Head(row[ids], row[parts[: row.size - count]] if count < row.size else None)
        for name in stages:
            _STAGES[name](head, settings)
        # Summed from the least probable on, in which float32 keeps the digits that the improbable need.
        behind = mx.cumsum(head.weights, reverse=True, inclusive=False) + head.others
        place = (behind >= (1 - uniform(settings.seed, position, 0)) * head.total).sum()
        return ids[mx.minimum(place, count - 1)]

    return guess


class _Head:
    """The most probable tokens of a row, as stages leave them.

    Args:
        values: Their logits, float32, largest first.
        others: Those of all other tokens, None where there are none.
    """

    def __init__(self, values: mx.array, others: mx.array | None) -> None:
        self._change(values - values[0], None if others is None else others - values[0])

    def _change(self, values: mx.array, others: mx.array | None) -> None:
        self.values, self._others = values, others
        """-inf where a stage cut; behind a stage that cuts all others are taken to be cut."""
        self.weights = mx.exp(values)
        """Probabilities, up to a factor."""
        self.others = mx.array(0.0) if others is None else mx.exp(others).sum()
        """The weight of all others together."""
        self.total = self.weights.sum() + self.others

    def keep(self, kept: mx.array) -> None:
        """Cut the others."""
        self._change(mx.where(kept, self.values, -math.inf), None)

    def scale(self, factor: float) -> None:
        """Multiply the logits."""
        self._change(self.values * factor, None if self._others is None else self._others * factor)


def _top_p(head: _Head, settings: Settings) -> None:
    kept = mx.cumsum(head.weights, inclusive=False) < settings.top_p * head.total
    if TOP_P_TIES[settings.sampler_order] == "all":
        kept = head.values >= mx.where(kept, head.values, math.inf).min()
    head.keep(kept)


def _min_p(head: _Head, settings: Settings) -> None:
    kept = head.values >= math.log(settings.min_p)
    head.keep(kept | (mx.arange(kept.size) < settings.min_tokens_to_keep))


def _top_k(head: _Head, settings: Settings) -> None:
    last = min(settings.top_k, head.values.size) - 1
    ties = TOP_K_TIES[settings.sampler_order] == "all"
    head.keep(head.values >= head.values[last] if ties else mx.arange(head.values.size) <= last)


def _temperature(head: _Head, settings: Settings) -> None:
    head.scale(1 / settings.temp)


_STAGES: Mapping[str, Callable[[_Head, Settings], None]] = {
    "top-p": _top_p,
    "min-p": _min_p,
    "top-k": _top_k,
    "temperature": _temperature,
}
"""The stages that are guessed, by name."""
