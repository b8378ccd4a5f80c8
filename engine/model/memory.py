"""The memory that arrays may take: how much is free, what is kept from being swapped, and what is too large."""

from __future__ import annotations

import mlx.core as mx
from mlx_lm.utils import maybe_set_recommended_wired_limit

from engine.memory import memory_available, memory_installed

NEAR = 0.9
"""Of the memory that is free, what weights may take without a word: mlx_lm's bound on Metal."""


def keep_in_memory() -> None:
    """Allow Metal to wire as much memory as it recommends, as mlx_lm does while it generates; nothing elsewhere.

    Weights that are not wired may be paged out between two steps, and here a person thinks between two steps. So the
    limit holds as long as the process, as that of mlx_lm's server.
    """
    maybe_set_recommended_wired_limit()


def free_bytes() -> int | None:
    """Bytes that new arrays may take where MLX computes; None where neither the framework nor the system tells.

    On CUDA what is free on the GPU. On Metal, which shares the machine's memory, what is left of what it recommends to
    wire, and no more than what the system has free. On a CPU what the system has free.
    """
    told, used = mx.device_info(), mx.get_active_memory()
    if isinstance(on_gpu := told.get("free_memory"), int):
        return on_gpu
    free = memory_available()
    if free is None and (installed := memory_installed()) is not None:
        free = max(0, installed - used)
    if isinstance(limit := told.get("max_recommended_working_set_size"), int) and limit:
        left = max(0, limit - used)
        return left if free is None else min(left, free)
    return free


def warning_of(needed: int) -> str:
    """Why weights that are about to be read would be slow to compute with; empty where they fit.

    Args:
        needed: Their bytes in memory.
    """
    free = free_bytes()
    if free is None or needed <= NEAR * free:
        return ""
    return (
        f"The weights take {needed / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB are free: with the KV cache the "
        "machine will swap, and a step may take minutes. A smaller model, or one of fewer bits, fits."
    )
