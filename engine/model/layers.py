"""The structure of a model, whatever its family: its decoder layers, and what their parts do.

The decoder layers are the model's list of modules, a layer's parts are its direct children. The names of its class and
attribute indicate what a part does; where they don't, only its path is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import mlx.nn as nn

from engine.protocol import Role

ROLES: tuple[tuple[Role, tuple[str, ...]], ...] = (
    ("norm", ("norm", " ln_", " ln")),
    (
        "recurrence",
        ("mamba", "ssm", "conv", "delta", "kda", "linear_attn", "linearattention", "lightning", "recurrent"),
    ),
    ("recurrence", ("rwkv", "time_mix", "timemix", "rglru")),
    ("attention", ("attn", "attention")),
    ("mlp", ("mlp", "moe", "feed_forward", "feedforward", "ffn", "expert", "channel_mix", "channelmix")),
    ("recurrence", ("mixer",)),
)
"""Roles by parts of `Class attribute` in lower case; the first that matches applies."""


def decoder_layers(model: Any) -> list[Any]:
    """The decoder layers: the model's `layers`, else its longest list of modules."""
    found = getattr(model, "layers", None)
    if not (isinstance(found, list) and is_stack(found)):
        stacks = (
            value for _, module in model.named_modules() for value in module.values() if is_stack(value)
        )
        found = max(stacks, key=len, default=[])
    return [layer for layer in found if isinstance(layer, nn.Module)]


def parts_of(layer: Any) -> Iterator[tuple[str, Any]]:
    """The direct children of a layer: attribute and module."""
    for attribute, child in layer.children().items():
        if isinstance(child, nn.Module):
            yield attribute, child


def is_stack(value: Any) -> bool:
    """Whether it is a list with modules in it."""
    return isinstance(value, list) and any(isinstance(item, nn.Module) for item in value)


def role_of(module: Any, attribute: str) -> Role:
    """What a part does, by the names of its class and of the attribute that holds it."""
    words = f"{type(module).__name__} {attribute}".lower()
    return next((role for role, parts in ROLES if any(part in words for part in parts)), "other")


def layers_in_words(numbers: Sequence[int]) -> str:
    """Layers as a person counts them, from 1: `Layer 3`, `Layers 1-4, 7`."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1]:
            runs[-1][1] = number + 1
        else:
            runs.append([number + 1, number + 1])
    words = ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in runs)
    return f"Layer {words}" if len(set(numbers)) == 1 else f"Layers {words}"
