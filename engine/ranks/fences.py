"""The time of a forward in compute and in communication: with a fence before and after each communication.

A tap in MLX's functions, as the inspection has: the families call them as attributes of `mx.distributed`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import mlx.core as mx

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

    before = {name: getattr(mx.distributed, name) for name in COMMUNICATIONS if hasattr(mx.distributed, name)}
    begun = time.perf_counter()
    try:
        for name, communicate in before.items():
            setattr(mx.distributed, name, fenced(communicate))
        forward()
    finally:
        for name, communicate in before.items():
            setattr(mx.distributed, name, communicate)
    total = time.perf_counter() - begun
    return (total - spent) * 1000, spent * 1000
