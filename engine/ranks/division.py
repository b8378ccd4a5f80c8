"""The division of a model among ranks, and the time of a forward in compute and in communication.

Dividing is what `mlx_lm.utils.sharded_load` does between its two loadings: `model.shard` or `model.model.pipeline`,
lazily, before weights are read. The function itself reads `model.safetensors.index.json`, which models of one file
lack, and loads tokenizer and weights in its own way, without a model's adapter and types.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import mlx.core as mx

from engine.errors import LoadError, first_line
from engine.model.layers import patched
from engine.protocol import Sharding


def sharding_of(model: Any, wanted: str, family: str) -> Sharding:
    """The way in which ranks divide a model.

    Args:
        model: The whole model.
        wanted: One of `engine.settings.SHARDS`.
        family: Its model type, for the message.

    Raises:
        LoadError: Its family can't be divided so.
    """
    able = _shardings(model)
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


def _shardings(model: Any) -> list[Sharding]:
    able: list[Sharding] = []
    if hasattr(model, "shard"):
        able.append("tensor")
    if hasattr(model, "model") and hasattr(model.model, "pipeline"):
        able.append("pipeline")
    return able


def divide(model: Any, sharding: Sharding, group: Any, family: str) -> range:
    """Leave of a model what one rank computes.

    Args:
        model: Its weights are lazy.
        sharding: From `sharding_of`.
        group: MLX's group of all ranks.
        family: Its model type, for the message.

    Returns:
        Indexes of the layers that this rank has, or has a part of.

    Raises:
        LoadError: So many ranks can't have even parts of it.
    """
    layers, heads = len(model.layers), _heads(model)
    try:
        if sharding == "tensor":
            try:
                model.shard(group)
            finally:
                _check_heads(heads, _heads(model), group.size())
            return range(layers)
        model.model.pipeline(group)
    except (ValueError, TypeError, AttributeError, NotImplementedError, ZeroDivisionError) as error:
        other = next((each for each in _shardings(model) if each != sharding), "")
        raise LoadError(
            f"{group.size()} ranks can't divide this model of type {family} by {sharding}: {first_line(error, 160)}.",
            f"Use fewer ranks, or --shard {other}." if other else "Use fewer ranks.",
        ) from error
    return range(int(model.model.start_idx), int(model.model.end_idx))


Heads = dict[tuple[str, str], int]
"""Numbers of heads, by the name of a module and of its attribute."""


def _heads(model: Any) -> Heads:
    return {
        (path, name): value
        for path, module in model.named_modules()
        for name, value in vars(module).items()
        if "heads" in name and type(value) is int
    }


def _check_heads(before: Heads, after: Heads, ranks: int) -> None:
    """Refuse a division by tensor in which a rank has no whole number of heads; mlx_lm divides without a check.

    Args:
        before: Of the whole model.
        after: Of the part of one rank, or of as much as was divided.
        ranks: How many divide it.

    Raises:
        LoadError: With the number of ranks that can.
    """
    divided = {key: (before[key], part) for key, part in after.items() if before.get(key, part) != part}
    for (_, name), (whole, part) in divided.items():
        if part and (whole < ranks or whole % ranks == 0):
            continue
        counts = range(ranks - 1, 0, -1)
        fewer = next(count for count in counts if not any(each % count for each, _ in divided.values()))
        kind = "KV head" if "kv" in name or "key_value" in name else "head"
        raise LoadError(
            f"{ranks} ranks can't divide this model by tensor: it has {whole} {kind}{'s' * (whole != 1)}.",
            f"Use {fewer} ranks."
            if fewer > 1
            else "Run it in one process: leave --ranks and --hostfile out.",
        )


# ---- the time of a forward in compute and in communication -------------------------------------

COMMUNICATIONS = ("all_gather", "all_max", "all_min", "all_sum", "recv", "recv_like", "send", "sum_scatter")


def fenced_ms(forward: Callable[[], Any]) -> tuple[float, float]:
    """Milliseconds of a forward in compute, and in communication with the waiting for other ranks.

    Args:
        forward: Computes and evaluates.
    """
    spent = 0.0

    def fenced(communicate: Callable[..., mx.array]) -> Callable[..., mx.array]:
        def communicated(*given: Any, **named: Any) -> mx.array:
            nonlocal spent
            mx.eval([each for each in given if isinstance(each, mx.array)])
            begun = time.perf_counter()
            result = communicate(*given, **named)
            mx.eval(result)
            spent += time.perf_counter() - begun
            return result

        return communicated

    taps = [
        (mx.distributed, name, fenced(getattr(mx.distributed, name)))
        for name in COMMUNICATIONS
        if hasattr(mx.distributed, name)
    ]
    begun = time.perf_counter()
    with patched(*taps):
        forward()
    total = time.perf_counter() - begun
    return (total - spent) * 1000, spent * 1000
