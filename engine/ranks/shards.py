"""How the families of mlx_lm divide a model, and what one rank has of it then.

This does what `mlx_lm.utils.sharded_load` does between the two loadings of that function: `model.shard` or
`model.model.pipeline`, lazily, before weights are read. The function itself reads `model.safetensors.index.json`, which
models of one file lack, and loads a tokenizer and weights in a way of its own, past a model's adapter and types.
"""

from __future__ import annotations

from typing import Any, Protocol

from engine.errors import LoadError
from engine.frozen import frozen
from engine.protocol import Sharding


class Group(Protocol):
    """What the families ask of MLX's group."""

    def rank(self) -> int:
        """Of this process."""

    def size(self) -> int:
        """Number of ranks."""


@frozen
class Shard:
    """What one rank has of a model."""

    first_layer: int
    layers: int


def sharding_of(model: Any, wanted: str, family: str) -> Sharding:
    """The way in which ranks divide a model.

    Args:
        model: The whole model.
        wanted: One of `engine.settings.SHARDS`.
        family: Its model type, for the message.

    Raises:
        LoadError: Its family can't be divided so.
    """
    able: list[Sharding] = []
    if hasattr(model, "shard"):
        able.append("tensor")
    if hasattr(model, "model") and hasattr(model.model, "pipeline"):
        able.append("pipeline")
    if wanted == "auto" and able:
        return able[0]
    if wanted in able:
        return wanted
    if able:
        raise LoadError(
            f"mlx_lm divides a model of type {family} by {able[0]}, not by {wanted}.",
            f"Use --shard {able[0]}.",
        )
    raise LoadError(
        f"mlx_lm can't divide a model of type {family} over several processes.",
        "Run it in one: leave --ranks and --hostfile out.",
    )


def divide(model: Any, sharding: Sharding, group: Group, family: str) -> Shard:
    """Leave of a model what one rank computes.

    Args:
        model: Its weights are lazy.
        sharding: From `sharding_of`.
        group: Of all ranks.
        family: Its model type, for the message.

    Raises:
        LoadError: So many ranks can't have even parts of it.
    """
    layers = len(model.layers)
    try:
        if sharding == "tensor":
            model.shard(group)
            return Shard(0, layers)
        model.model.pipeline(group)
    except (ValueError, TypeError, AttributeError, NotImplementedError, ZeroDivisionError) as error:
        raise LoadError(
            f"{group.size()} ranks can't divide this model of type {family} by {sharding}: {_line(error)}.",
            "Use fewer ranks, or the other --shard.",
        ) from error
    return Shard(int(model.model.start_idx), int(model.model.end_idx) - int(model.model.start_idx))


def _line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:160].rstrip(".") if lines else type(error).__name__
