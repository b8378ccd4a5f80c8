"""The structure of a model of any family, and temporary replacements of its calls.

The decoder layers are the model's list of modules, and the parts of a layer are its direct children. The role of a part
follows from the names of its class and attribute; if they are unknown, only its path is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from engine.protocol import Role

ROLES: tuple[tuple[Role, tuple[str, ...]], ...] = (
    ("norm", ("norm", " ln_", " ln")),
    ("recurrence", ("mamba", "ssm", "conv", "delta", "kda", "linear_attn", "linearattention", "lightning")),
    ("recurrence", ("recurrent", "rwkv", "time_mix", "timemix", "rglru")),
    ("attention", ("attn", "attention")),
    ("mlp", ("mlp", "moe", "feed_forward", "feedforward", "ffn", "expert", "channel_mix", "channelmix")),
    ("recurrence", ("mixer",)),
)
"""Roles, with substrings of `Class attribute` in lower case; the first match applies."""


def decoder_layers(model: Any) -> list[Any]:
    """The decoder layers: the model's `layers`, or else its longest list of modules."""
    found: Any = getattr(model, "layers", None)
    if not is_stack(found):
        values = (value for _, module in model.named_modules() for value in module.values())
        found = max(filter(is_stack, values), key=len, default=[])
    return [layer for layer in found if isinstance(layer, nn.Module)]


def parts_of(layer: Any) -> list[tuple[str, Any]]:
    """The direct children of a layer, as pairs of attribute and module."""
    return [each for each in layer.children().items() if isinstance(each[1], nn.Module)]


def is_stack(value: Any) -> bool:
    """True if the value is a list with modules in it."""
    return isinstance(value, list) and any(isinstance(item, nn.Module) for item in value)


def role_of(module: Any, attribute: str) -> Role:
    """The role of a part, from the names of its class and attribute."""
    words = f"{type(module).__name__} {attribute}".lower()
    return next((role for role, parts in ROLES if any(part in words for part in parts)), "other")


def layers_in_words(numbers: Sequence[int]) -> str:
    """Layers in words, counted from 1 as on the screen: `Layer 3`, `Layers 1-4, 7`."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1]:
            runs[-1][1] = number + 1
        else:
            runs.append([number + 1, number + 1])
    words = ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in runs)
    return f"Layer {words}" if len(set(numbers)) == 1 else f"Layers {words}"


# ---- temporary replacements of attributes of modules and classes -------------------------------

Patch = tuple[Any, str, Any]
"""An owner, the name of its attribute, and the value to set."""
Wrapper = Callable[[Callable[..., Any], Any, tuple[Any, ...], dict[str, Any]], Any]
"""Called instead of a module's `__call__` with the original, the module, and its arguments."""


@contextmanager
def patched(*patches: Patch) -> Iterator[None]:
    """Set attributes in this block; afterwards, even after an exception, they are restored in reverse order."""
    with ExitStack() as restored:
        for owner, name, value in patches:
            own = vars(owner)
            if name in own:
                restored.callback(setattr, owner, name, own[name])
            else:  # a class inherits it
                restored.callback(delattr, owner, name)
            setattr(owner, name, value)
        yield


def calls(modules: Collection[Any], wrapper: Wrapper, method: str = "__call__") -> list[Patch]:
    """Make patches that wrap the calls of some modules.

    Python looks up a call on the class, so the classes are patched. Other instances run as before, and so does a
    `super()` call within a wrapped call.

    Args:
        modules: The instances.
        wrapper: Called instead.
        method: Name of the method to wrap.
    """
    wrapped = set(map(id, modules))
    running: set[int] = set()
    patches: list[Patch] = []
    for cls in set(map(type, modules)):
        own = getattr(cls, method)

        def call(module: Any, *args: Any, _own: Any = own, **kwargs: Any) -> Any:
            if id(module) not in wrapped or id(module) in running:
                return _own(module, *args, **kwargs)
            running.add(id(module))
            try:
                return wrapper(_own, module, args, kwargs)
            finally:
                running.discard(id(module))

        patches.append((cls, method, call))
    return patches


# ---- the tail of a model: final norm, head, multipliers and softcap, over any residual streams ----
# The model runs with every layer replaced by a function that returns the given streams, so that the operations after
# the layers are the family's own code. Of 126 families this fails for three, because their layers need more than a
# stream or are not called; then `Tail.fits` is False.


def hidden(result: Any) -> mx.array:
    """The residual stream in a layer's result, which may be a tuple."""
    state: mx.array = result[0] if isinstance(result, tuple | list) else result
    return state


def with_hidden(result: Any, state: mx.array) -> Any:
    """A layer's result with the residual stream replaced."""
    return type(result)([state, *result[1:]]) if isinstance(result, tuple | list) else state


def kept(array: mx.array) -> mx.array:
    """The same numbers in a new object, since models change a residual stream in place (`h *= scale`)."""
    return array.astype(array.dtype)


def after_layers(model: Any, streams: mx.array, returned: Mapping[int, Any]) -> mx.array:
    """Compute logits from the residual streams after the last layer, with the model's own code.

    Args:
        model: The model as loaded by mlx_lm.
        streams: Shape (..., rows, tokens, size); gemma3n has several streams, in an axis before the rows.
        returned: Results of layers for any tokens, by index; their values besides the stream are passed on.

    Returns:
        Logits in the model's dtype, shape (rows, tokens, vocabulary), lazy.
    """
    layers = decoder_layers(model)
    index = {id(layer): number for number, layer in enumerate(layers)}

    def hand_on(original: Any, module: Any, args: Any, kwargs: Any) -> Any:
        return with_hidden(returned.get(index[id(module)]), kept(streams))

    with patched(*calls(layers, hand_on)):
        logits: mx.array = model(mx.ones(streams.shape[-3:-1], dtype=mx.int32))
    return logits


class Tail:
    """The part of a model after its last layer, for streams from the model's own forward passes.

    Args:
        model: The model as loaded by mlx_lm.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._returned: dict[int, Any] = {}
        """Results of the layers in the trial that contain more than the stream, by the layer's index."""
        self.fits = False
        """True if the logits of the trial were close to the model's."""

    def trial(self, tokens: mx.array, cache: Any) -> mx.array:
        """Run the model, and find out if its tail can be run separately; returns the model's logits.

        Args:
            tokens: One token, shape (1, 1).
            cache: The model's caches.
        """
        with self.watched(self._returned) as streams:
            logits: mx.array = self._model(tokens, cache=cache)
        with suppress(Exception):  # this family's code after the layers may not accept these streams
            near = mx.allclose(logits, self.logits(streams[0]), rtol=1e-2, atol=1e-2, equal_nan=True)
            self.fits = bool(near.item())
        return logits

    @contextmanager
    def watched(self, returned: dict[int, Any] | None = None) -> Iterator[list[mx.array]]:
        """Store the stream after the last layer of the forward pass in this block; it stays lazy.

        Args:
            returned: Receives the results of layers that contain more than the stream, by the layer's index.

        Yields:
            A list that contains the stream after the forward pass.
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
        """See `after_layers`; the streams may be those of only some of the tokens."""
        return after_layers(self._model, streams, self._returned)
