"""The weights that each module of a model holds, and how many numbers they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mlx.core as mx
import mlx.nn as nn

SCALING = ("scales", "biases", "global_scale")
"""Arrays that belong to a packed weight and are no parameters of their own."""


def own_arrays(module: Any) -> dict[str, mx.array]:
    """The weights that a module holds itself, in lists too, not those of the modules in it.

    Returns:
        By attribute; mlx.nn counts no attribute that begins with `_`.
    """
    return {
        name: array
        for key, value in module.items()
        if not key.startswith("_")
        for name, array in _arrays(key, value)
    }


def _arrays(name: str, value: Any) -> Iterator[tuple[str, mx.array]]:
    if isinstance(value, mx.array):
        yield name, value
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _arrays(f"{name}.{index}", item)
    elif isinstance(value, dict) and not isinstance(value, nn.Module):
        for key, item in value.items():
            yield from _arrays(f"{name}.{key}", item)


def is_packed(module: Any) -> bool:
    """Whether each number of a module's `weight` holds several quantized ones."""
    return hasattr(module, "bits") and "scales" in module and "weight" in module


def own_parameters(module: Any) -> int:
    """Number of parameters that a module holds itself; of a packed weight, that of its unpacked numbers."""
    own = own_arrays(module)
    if not is_packed(module):
        return sum(array.size for array in own.values())
    others = sum(array.size for name, array in own.items() if name not in (*SCALING, "weight"))
    return int(own["weight"].size * 32 // module.bits) + others


def parameters_of(model: Any) -> int:
    """Number of parameters of a model, each array once.

    mlx_lm's `get_total_parameters` leaves out arrays of modules that hold other modules, as recurrent mixers do.
    """
    return sum(own_parameters(module) for module in _modules(model))


def bytes_of(model: Any) -> int:
    """Bytes of a model's weights, each array once."""
    return sum(array.nbytes for module in _modules(model) for array in own_arrays(module).values())


def _modules(model: Any) -> list[Any]:
    return list({id(module): module for _, module in model.named_modules()}.values())
