"""The end of a model: its final norm, head, multipliers and softcap, over the residual streams of any tokens.

The model runs with every layer replaced by a function that returns the given streams, so that whatever the family does
after its layers is right by construction. Of 126 families it is not for three, whose layers need more than a stream or
are not called; `Tail.fits` says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import mlx.core as mx

from engine.model.layers import decoder_layers
from engine.model.patches import calls, patched


def hidden(result: Any) -> mx.array:
    """The residual stream in what a layer returns: some return a tuple."""
    state: mx.array = result[0] if isinstance(result, tuple | list) else result
    return state


def with_hidden(result: Any, state: mx.array) -> Any:
    """What a layer returned, with another residual stream."""
    if isinstance(result, tuple | list):
        return type(result)([state, *result[1:]])
    return state


def kept(array: mx.array) -> mx.array:
    """The same numbers in an object of its own: models change a residual stream in place (`h *= scale`)."""
    return array.astype(array.dtype)


def after_layers(model: Any, streams: mx.array, returned: Mapping[int, Any]) -> mx.array:
    """The logits that the model's own code computes after its last layer.

    Args:
        model: As mlx_lm loads it.
        streams: Shape (..., rows, tokens, size); gemma3n has several, an axis before the rows.
        returned: By index what layers returned for any tokens: what it has besides a stream is handed on.

    Returns:
        In the model's dtype, shape (rows, tokens, vocabulary), lazy.
    """
    layers = decoder_layers(model)
    index = {id(layer): number for number, layer in enumerate(layers)}

    def hand_on(original: Any, module: Any, args: Any, kwargs: Any) -> Any:
        return with_hidden(returned.get(index[id(module)]), kept(streams))

    with patched(*calls(layers, hand_on)):
        logits: mx.array = model(mx.ones(streams.shape[-3:-1], dtype=mx.int32))
    return logits


class Tail:
    """A model's end, for the streams of its own forwards.

    Args:
        model: As mlx_lm loads it.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._returned: dict[int, Any] = {}
        """By index what its layers returned in the trial, where that is more than the stream."""
        self.fits = False
        """Whether the trial's logits were those of the model."""

    def trial(self, tokens: mx.array, cache: Any) -> mx.array:
        """Run the model, and find out whether its end can be run alone.

        Args:
            tokens: One token, shape (1, 1).
            cache: For the model.
        """
        with self.watched(self._returned) as streams:
            logits: mx.array = self._model(tokens, cache=cache)
        try:
            near = mx.allclose(logits, self.logits(streams[0]), rtol=1e-2, atol=1e-2, equal_nan=True)
            self.fits = bool(near.item())
        except Exception:  # whatever this family's code does after its layers doesn't fit these streams
            self.fits = False
        return logits

    @contextmanager
    def watched(self, returned: dict[int, Any] | None = None) -> Iterator[list[mx.array]]:
        """Keep the stream after the last layer of the forward in this block; it stays lazy.

        Args:
            returned: Takes what layers return that is more than the stream.
        """
        layers = decoder_layers(self._model)
        index = {id(layer): number for number, layer in enumerate(layers)}
        streams: list[mx.array] = []

        def keep(original: Any, module: Any, args: Any, kwargs: Any) -> Any:
            result = original(module, *args, **kwargs)
            streams[:] = [kept(hidden(result))]
            if returned is not None and isinstance(result, tuple | list):
                returned[index[id(module)]] = result
            return result

        with patched(*calls(layers, keep)):
            yield streams

    def logits(self, streams: mx.array) -> mx.array:
        """The logits after some streams, as `after_layers`; a part of the tokens may be given."""
        return after_layers(self._model, streams, self._returned)
