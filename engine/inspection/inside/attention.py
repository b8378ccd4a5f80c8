"""Where each head of each layer looks while one token goes through the model."""

from __future__ import annotations

import time

import mlx.core as mx
import numpy as np

from engine.inspection.inside.capture import Capture, capture
from engine.inspection.inside.taps import AttentionRun
from engine.model.forward import Stopped, never
from engine.model.layers import decoder_layers
from engine.records import AttentionLayer, AttentionRead, Check, Floats
from engine.records.inside import CheckName
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
    depth = len(decoder_layers(session.runner.model))
    runs = [run for taps in taken.taps for run in taps.attended]
    known = [(run, span) for run in runs if (span := path_order(run, taken.depth)) is not None]
    dtype = "<f4" if 4 * sum(run.weights[:, -1].size for run, _ in known) <= WIDE else "<f2"
    layers = tuple(_layer(run, *span, dtype) for run, span in known)
    facts = taken.facts(begun, session.facts.family, *attention_checks(taken, runs))
    return AttentionRead(node, taken.depth, layers, depth, _missing(runs, layers, depth), facts)


def path_order(run: AttentionRun, depth: int) -> tuple[list[int], int] | None:
    """The order that brings a head's keys into that of the path.

    Args:
        run: The attention.
        depth: Tokens of the path.

    Returns:
        For each place the index of its key, and how many of the path's first tokens are among the keys, before those of
        its end; None where the positions are not known, or have another gap.
    """
    if run.positions is None:
        return None
    order = sorted(range(len(run.positions)), key=run.positions.__getitem__)
    positions = [run.positions[index] for index in order]
    keep = next((place for place, position in enumerate(positions) if place != position), len(positions))
    rest = len(positions) - keep
    return (order, keep) if positions[keep:] == list(range(depth - rest, depth)) else None


def _layer(run: AttentionRun, order: list[int], keep: int, dtype: str) -> AttentionLayer:
    weights = run.weights[:, -1, :][:, mx.array(order)]
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
        self._errors: list[tuple[float, int]] = []
        self._sums: list[tuple[float, int]] = []
        self._rows = ROWS

    def take(self, run: AttentionRun) -> None:
        """Check one attention."""
        if run.error is not None:
            self._errors.append((run.error, run.layer))
        self._sums.append((_sum_error(run), run.layer))
        if run.kind == "softmax":  # the model's own weights, rounded to its dtype
            self._rows = max(ROWS, self._bound)

    def made(self) -> tuple[Check, ...]:
        """The checks of all that were taken."""
        return (
            *([_worst("attention", self._errors, self._bound)] if self._errors else []),
            *([_worst("rows", self._sums, self._rows)] if self._sums else []),
        )


def _worst(name: CheckName, errors: list[tuple[float, int]], bound: float) -> Check:
    error, layer = max((error if np.isfinite(error) else float("inf"), layer) for error, layer in errors)
    return Check(name, error, bound, f"layer {layer + 1}")


def _sum_error(run: AttentionRun) -> float:
    sums = run.weights.sum(axis=-1)
    if run.sinks is not None:
        sums = sums + run.sinks
    return float(np.array(mx.abs(sums - 1).max()))


def _missing(runs: list[AttentionRun], layers: tuple[AttentionLayer, ...], depth: int) -> tuple[str, ...]:
    """Why some layers have no weights to show."""
    there, ran = {layer.layer for layer in layers}, {run.layer for run in runs}
    if not runs:
        return ("No layer of this model has an attention: it keeps states instead of keys and values.",)
    unknown = sorted(ran - there)
    without = sorted(set(range(depth)) - ran)
    return (
        *([f"{_layers(without)} without an attention: {_verb(without)} a state instead."] if without else []),
        *([f"{_layers(unknown)}: which tokens the keys belong to isn't known."] if unknown else []),
    )


def _layers(numbers: list[int]) -> str:
    """Layers as a person counts them, from 1."""
    counted = ", ".join(str(number + 1) for number in numbers)
    return f"Layer {counted}" if len(numbers) == 1 else f"Layers {counted}"


def _verb(numbers: list[int]) -> str:
    return "it keeps" if len(numbers) == 1 else "they keep"
