"""Attention weights, computed anew from the queries and keys that a fused attention was given."""

from __future__ import annotations

from typing import Any, NamedTuple

import mlx.core as mx

from engine.frozen import frozen

softmax = mx.softmax
"""MLX's own: while taps are set, `mx.softmax` is another function."""
_UNIT_ROUNDOFF = {mx.bfloat16: 2.0**-8, mx.float16: 2.0**-11}
"""By dtype, how far rounding moves a number at most, as a share of it. In float32 the general bound is wider."""


@frozen
class AttentionInputs:
    """The arguments of one attention, its keys and values unpacked."""

    queries: mx.array
    """Shape (1, heads, tokens, size)."""
    keys: mx.array
    """Shape (1, KV heads, keys, size)."""
    values: mx.array
    """Shape (1, KV heads, keys, size of values)."""
    scale: float
    mask: Any
    """None, `causal`, booleans, or numbers to add."""
    sinks: mx.array | None
    """A logit for each head that takes a share of the softmax and has no value."""


class AttentionWeights(NamedTuple):
    """What an attention weighed its values with, in float32."""

    weights: mx.array
    """Shape (heads, tokens, keys)."""
    sinks: mx.array
    """Each head's share that its sink takes, shape (heads, tokens)."""
    rounding: mx.array
    """By how much the model's own rounding may have moved a weight, as a share of it; a scalar, 0 in float32."""


def attention_weights(given: AttentionInputs) -> AttentionWeights:
    """What a fused attention weighed its values with: softmax(scale x Q K^T + mask), in float32.

    Heads that share keys are grouped instead of repeating the keys. MLX's CPU rounds each score to the dtype of the
    queries, which moves a score s by at most u |s|, and its weight by that share: in bfloat16, with u = 2**-8, a
    score of 16 by 6 %.
    """
    queries, keys = given.queries.astype(mx.float32), given.keys.astype(mx.float32)
    _, heads, tokens, size = queries.shape
    groups, count = keys.shape[1], keys.shape[2]
    grouped = (queries * given.scale).reshape(groups, heads // groups * tokens, size)
    scores = (grouped @ keys[0].swapaxes(-1, -2)).reshape(1, heads, tokens, count)
    rounding = mx.abs(scores).max() * _UNIT_ROUNDOFF.get(given.queries.dtype, 0.0)
    scores = _masked(scores, given.mask)[0]
    if given.sinks is None:
        return AttentionWeights(softmax(scores, axis=-1), mx.zeros((heads, tokens)), rounding)
    sinks = mx.broadcast_to(given.sinks.astype(mx.float32).reshape(-1, 1, 1), (heads, tokens, 1))
    shares = softmax(mx.concatenate([sinks, scores], axis=-1), axis=-1)
    return AttentionWeights(shares[..., 1:], shares[..., 0], rounding)


def _masked(scores: mx.array, mask: Any) -> mx.array:
    if mask is None:
        return scores
    tokens, count = scores.shape[-2:]
    if isinstance(mask, str):  # "causal": the last query sees all keys
        mask = mx.arange(count - tokens, count)[:, None] >= mx.arange(count)[None]
    return mx.where(mask, scores, -mx.inf) if mask.dtype == mx.bool_ else scores + mask.astype(mx.float32)


def weighted_error(weights: mx.array, values: mx.array, output: mx.array) -> mx.array:
    """How far an attention's output is from its values under these weights.

    Args:
        weights: Shape (heads, tokens, keys).
        values: Shape (1, KV heads, keys, size).
        output: Of the fused attention, shape (1, heads, tokens, size).

    Returns:
        The largest difference as a share of the largest output; a scalar.
    """
    heads, tokens, count = weights.shape
    groups = values.shape[1]
    mine = weights.reshape(groups, heads // groups * tokens, count) @ values[0].astype(mx.float32)
    fused = output[0].astype(mx.float32)
    difference = mx.abs(mine.reshape(fused.shape) - fused).max()
    return difference / mx.maximum(mx.abs(fused).max(), 1e-9)
