"""Models that are really other models: the independent reference of interventions, with no tap.

An instance gets a class of its own, whose call differs; a model's list of layers stays what its own code expects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import numpy as np

from engine.sampling.ranking import Row

Change = Callable[[Any, Any], Any]
"""From what a module is given, and what it returns, to what it returns instead."""


@contextmanager
def swapped(module: Any, change: Change) -> Iterator[None]:
    """Give a module another call for this block."""
    own = type(module)

    def call(self: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        return change(x, own.__call__(self, x, *args, **kwargs))

    module.__class__ = type(f"Swapped{own.__name__}", (own,), {"__call__": call})
    try:
        yield
    finally:
        module.__class__ = own


def with_stream(result: Any, stream: Any) -> Any:
    """What a layer returned, with another residual stream."""
    return type(result)([stream, *result[1:]]) if isinstance(result, tuple | list) else stream


def stream_of(result: Any) -> Any:
    """The residual stream of what a layer returned."""
    return result[0] if isinstance(result, tuple | list) else result


def identity(given: Any, result: Any) -> Any:
    """The layer does nothing."""
    return with_stream(result, given)


def identity_at_the_end(given: Any, result: Any) -> Any:
    """The layer does nothing to the last token."""
    own = stream_of(result)
    return with_stream(result, mx.concatenate([own[:, :-1], given[:, -1:]], axis=1))


def logits(model: Any, ids: list[int]) -> Row:
    """The logits after the last of some tokens, computed with no cache."""
    return np.array(model(mx.array([ids]))[0, -1].astype(mx.float32))
