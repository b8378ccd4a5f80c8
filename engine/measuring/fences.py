"""Times the parts of a model: evaluates a part's inputs before its time begins, and its outputs before it ends.

The parts are the decoder layers and their direct children (`engine.model.layers`), and outside the layers every module
without submodules.

Python looks up a module's call on its class, so the classes are patched while the fences are installed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from engine.cache.kinds import arrays
from engine.frozen import frozen
from engine.model.layers import decoder_layers, is_stack, parts_of, role_of
from engine.protocol import Role


@frozen
class FencedPlace:
    """A part's place in the model, and its role."""

    name: str
    role: Role
    layer: int | None


def places(model: Any, vocabulary: int) -> dict[int, FencedPlace]:
    """The parts of a model, by the `id()` of their modules.

    Args:
        model: As mlx_lm loads it.
        vocabulary: Rows of its embedding: a projection to that many numbers is the head.
    """
    names = {id(module): name for name, module in model.named_modules()}
    parts: dict[int, FencedPlace] = {}
    inside: set[int] = set()
    for index, layer in enumerate(decoder_layers(model)):
        inside |= {id(module) for _, module in layer.named_modules()}
        path = names.get(id(layer), f"layers.{index}")
        parts[id(layer)] = FencedPlace(path, "residual", index)
        for attribute, child in parts_of(layer):
            parts[id(child)] = FencedPlace(f"{path}.{attribute}", role_of(child, attribute), index)
    for name, module in model.named_modules():
        if name and id(module) not in inside and not _has_modules(module):
            parts[id(module)] = FencedPlace(name, _outer_role(module, name.split(".")[-1], vocabulary), None)
    return parts


def _has_modules(module: Any) -> bool:
    return any(isinstance(child, nn.Module) or is_stack(child) for child in module.children().values())


def _outer_role(module: Any, attribute: str, vocabulary: int) -> Role:
    if isinstance(module, nn.Embedding | nn.QuantizedEmbedding):
        return "embedding"
    weight = getattr(module, "weight", None)
    if isinstance(weight, mx.array) and weight.ndim == 2 and weight.shape[0] == vocabulary:
        return "head"
    role = role_of(module, attribute)
    return role if role == "norm" else "other"


@dataclass(slots=True)
class _Open:
    """A part that is running."""

    module: Any
    begun: float
    inner: float = 0.0


@dataclass(slots=True)
class Fences:
    """Measures the parts of one model.

    Args:
        places: The parts.
        pending: Arrays that belong to a part though its result doesn't depend on them: recurrent states.
    """

    places: Mapping[int, FencedPlace]
    pending: Callable[[], list[mx.array]]
    times: dict[FencedPlace, float] = field(default_factory=dict)
    """Milliseconds of each part without the parts inside it, in the order in which they ended."""
    _open: list[_Open] = field(default_factory=list)

    def take(self) -> dict[FencedPlace, float]:
        """Return the times since the last call, and reset them."""
        times, self.times = self.times, {}
        return times

    @contextmanager
    def installed(self, model: Any) -> Iterator[None]:
        """Patch the classes with fences; on leaving, even by an exception, they are restored."""
        classes = {type(module) for _, module in model.named_modules() if id(module) in self.places}
        patched = []
        try:
            for cls in classes:
                for method in ("__call__", "as_linear"):
                    if hasattr(cls, method):
                        patched.append((cls, method, cls.__dict__.get(method)))
                        setattr(cls, method, self._fenced(getattr(cls, method), method))
            yield
        finally:
            self._open.clear()
            for cls, method, own in reversed(patched):
                if own is None:
                    delattr(cls, method)
                else:
                    setattr(cls, method, own)

    def _fenced(self, original: Callable[..., Any], method: str) -> Callable[..., Any]:
        def call(module: Any, *given: Any, **named: Any) -> Any:
            place = self.places.get(id(module))
            if place is None or (self._open and self._open[-1].module is module):  # or a super() call
                return original(module, *given, **named)
            if method == "as_linear":  # tied weights: the embedding is the head too
                place = FencedPlace(f"{place.name}.as_linear", "head", None)
            return self._timed(place, module, lambda: original(module, *given, **named), (given, named))

        return call

    def _timed(self, place: FencedPlace, module: Any, run: Callable[[], Any], given: Any) -> Any:
        mx.eval(list(_arrays(given)))
        self._open.append(_Open(module, time.perf_counter()))
        result = run()
        mx.eval([*_arrays(result), *self.pending()])
        this = self._open.pop()
        ms = (time.perf_counter() - this.begun) * 1000
        if self._open:
            self._open[-1].inner += ms
        self.times[place] = self.times.get(place, 0.0) + ms - this.inner
        return result


def _arrays(value: Any) -> Iterator[mx.array]:
    """The arrays in a module's inputs or outputs."""
    if isinstance(value, dict) and not isinstance(value, nn.Module):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from _arrays(item)
    else:
        yield from arrays(value)
