"""Where each head of each layer looks while one token goes through the model."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Literal

import mlx.core as mx
import numpy as np

from engine.inspection.inside.capture import Capture, capture
from engine.inspection.inside.taps import AttentionRun
from engine.model.forward import Stopped, never
from engine.model.layers import decoder_layers, layers_in_words, parts_of, role_of
from engine.protocol import AttentionLayer, AttentionRead, Check, CheckName, Floats
from engine.session.session import Session

WIDE = 2**20
"""Bytes of all weights of a token up to which they are handed out in 32 bits, beyond that in 16."""
ROWS = 1e-5
"""Bound of the difference of a row's sum from 1: 4e-7 was seen over 101 models."""


def read_attention(session: Session, node: int, stopped: Stopped = never) -> AttentionRead:
    """Run a token again and read the weights of all heads.

    Args:
        session: Has read a prompt; not changed.
        node: The token that looks.
        stopped: Polled before each chunk and forward.

    Raises:
        StepError: There is no such node, or it is the root.
        Cancelled: `stopped` returned True.
    """
    begun = time.perf_counter()
    taken = capture(session, node, attention=True, stopped=stopped)
    own = decoder_layers(session.runner.model)
    runs = [run for taps in taken.taps for run in taps.attended]
    dtype = "<f4" if 4 * sum(run.weights[:, -1].size for run in runs) <= WIDE else "<f2"
    layers = tuple(layer for run in runs if (layer := _layer(run, taken.depth, dtype)) is not None)
    facts = taken.facts(begun, session.facts.family, *attention_checks(taken, runs))
    missing = _missing(own, taken, {run.layer for run in runs}, {layer.layer for layer in layers})
    return AttentionRead(node, taken.depth, layers, len(own), missing, facts)


def path_order(run: AttentionRun, depth: int) -> tuple[list[int], int] | None:
    """The order that brings a head's keys into that of the path.

    Args:
        run: The attention.
        depth: Tokens of the path.

    Returns:
        For each place the index of its key, and how many of the path's first tokens are among the keys, before those of
        its end; None where the positions are not known, or have other gaps.
    """
    if run.positions is None:
        return None
    order = sorted(range(len(run.positions)), key=run.positions.__getitem__)
    positions = [run.positions[index] for index in order]
    keep = next((place for place, position in enumerate(positions) if place != position), len(positions))
    rest = len(positions) - keep
    return (order, keep) if positions[keep:] == list(range(depth - rest, depth)) else None


def _layer(run: AttentionRun, depth: int, dtype: str) -> AttentionLayer | None:
    """What a record has of the attention of the last token; None where it isn't known whose keys it saw."""
    if run.positions is None:
        return None
    weights, span = run.weights[:, -1, :], path_order(run, depth)
    if span is not None:
        weights, keep = weights[:, mx.array(span[0])], span[1]
    else:  # a choice of keys from anywhere in the path
        whole = mx.zeros((weights.shape[0], depth))
        whole[:, mx.array(run.positions)] = weights
        weights, keep = whole, depth
    packed = np.array(weights).astype(dtype)
    sinks = tuple(float(share) for share in np.array(run.sinks[:, -1])) if run.sinks is not None else ()
    return AttentionLayer(
        run.layer,
        run.kind,
        run.kv_heads,
        Floats(packed.shape, packed.tobytes(), 8 * packed.itemsize),
        keep,
        sinks,
    )


def attention_checks(taken: Capture, runs: list[AttentionRun]) -> tuple[Check, ...]:
    """How far the recomputed weights are from what the model's attention used, and their sums from 1."""
    worst = AttentionChecks(taken.bound)
    for run in runs:
        worst.take(run)
    return worst.made()


class AttentionChecks:
    """The worst errors of attentions that come one after another.

    Args:
        bound: For relative errors in the dtype that the model computes in.
    """

    def __init__(self, bound: float) -> None:
        self._bound = bound
        self._errors: list[Check] = []
        self._sums: list[Check] = []

    def take(self, run: AttentionRun) -> None:
        """Check one attention."""
        if run.error is not None:
            self._errors.append(_check("attention", run.error, max(self._bound, run.rounding), run.layer))
        if run.weights.ndim == 3:
            own = run.kind == "softmax"  # the model's own weights, rounded to its dtype
            bound = max(ROWS, self._bound) if own else ROWS
            self._sums.append(_check("rows", _sum_error(run), bound, run.layer))

    def made(self) -> tuple[Check, ...]:
        """The checks of all that were taken."""
        return (
            *([max(self._errors, key=_strain)] if self._errors else []),
            *([max(self._sums, key=_strain)] if self._sums else []),
        )


def _check(name: CheckName, error: float, bound: float, layer: int) -> Check:
    return Check(name, error if np.isfinite(error) else float("inf"), bound, f"layer {layer + 1}")


def _strain(check: Check) -> float:
    return check.error / check.bound


def _sum_error(run: AttentionRun) -> float:
    sums = run.weights.sum(axis=-1)
    if run.sinks is not None:
        sums = sums + run.sinks
    return float(np.array(mx.abs(sums - 1).max()))


def _missing(own: Sequence[Any], taken: Capture, ran: set[int], there: set[int]) -> tuple[str, ...]:
    """Why some layers have no weights to show."""
    if not taken.taps[-1].layers:
        return (
            "This architecture runs the parts of its layers itself, so no attention can be told from another.",
        )
    without = [index for index in range(len(own)) if index not in ran]
    states = [index for index in without if _recurs(own[index])]
    if len(states) == len(own):
        return ("No layer of this model has an attention: it keeps states instead of keys and values.",)
    bare, unknown = sorted(set(without) - set(states)), sorted(ran - there)
    return (
        *(
            [f"{layers_in_words(states)} {_verb(states, 'keep')} a state instead of keys and values."]
            if states
            else []
        ),
        *([f"{layers_in_words(bare)} {_verb(bare, 'have')} no attention."] if bare else []),
        *([f"{layers_in_words(unknown)}: which tokens the keys belong to isn't known."] if unknown else []),
    )


def _recurs(layer: Any) -> bool:
    return any(role_of(part, name) == "recurrence" for name, part in parts_of(layer))


def _verb(numbers: list[int], plural: Literal["keep", "have"]) -> str:
    return {"keep": "keeps", "have": "has"}[plural] if len(numbers) == 1 else plural
