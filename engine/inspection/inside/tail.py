"""The end of a model over residual streams that a tap has seen, each as a sequence of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from engine.inspection.inside.taps import LayerRun
from engine.model.layers import after_layers


def tail(model: Any, states: mx.array, layers: Mapping[int, LayerRun]) -> mx.array:
    """The logits that the model's own code computes after its last layer.

    Args:
        model: As mlx_lm loads it.
        states: Residual streams, shape (..., rows, size); gemma3n has several, an axis before the rows.
        layers: Of a forward; what else the layers returned is handed on.

    Returns:
        Float32, shape (rows, vocabulary), lazy.
    """
    returned = {index: run.result for index, run in layers.items()}
    return after_layers(model, states[..., None, :], returned)[:, -1, :].astype(mx.float32)
