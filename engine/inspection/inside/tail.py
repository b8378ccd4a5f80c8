"""The end of a model: its final norm, head, multipliers and softcap, over any residual streams."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from engine.inspection.inside.patches import calls, patched
from engine.inspection.inside.taps import LayerRun, kept, with_hidden
from engine.model.layers import decoder_layers


def tail(model: Any, states: mx.array, layers: Mapping[int, LayerRun]) -> mx.array:
    """The logits that the model's own code computes after its last layer.

    The model runs with every layer replaced by a function that returns the given rows, so that whatever the family does
    after its layers is right by construction.

    Args:
        model: As mlx_lm loads it.
        states: Residual streams, shape (..., rows, size); gemma3n has several, an axis before the rows.
        layers: Of a forward; what else the layers returned is handed on.

    Returns:
        Float32, shape (rows, vocabulary), lazy.
    """
    own = decoder_layers(model)
    index = {id(layer): number for number, layer in enumerate(own)}
    rows, count = states[..., None, :], states.shape[-2]

    def hand_on(original: Any, module: Any, args: Any, kwargs: Any) -> Any:
        run = layers.get(index[id(module)])
        return with_hidden(run.result if run is not None else None, kept(rows))

    with patched(*calls(own, hand_on)):
        logits: mx.array = model(mx.zeros((count, 1), dtype=mx.int32))
    return logits[:, -1, :].astype(mx.float32)
