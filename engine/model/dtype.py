"""The floating-point type that a model computes in: its file's, or another one that was asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import mlx.core as mx
from mlx.utils import tree_flatten

MEMORY_SHARE = 0.5
"""Of the memory that is free, what the weights may take in a larger type without being asked for."""
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}


def dtype_of(model: Any) -> str:
    """The type of most of the weights' floating-point numbers; the packed ones of quantized weights don't count."""
    sizes: dict[str, int] = {}
    for array in _floating(model):
        name = str(array.dtype).removeprefix("mlx.core.")
        sizes[name] = sizes.get(name, 0) + array.size
    return max(sizes, key=lambda name: sizes[name], default="float32")


def set_dtype(model: Any, wanted: str, fast_blas: bool) -> tuple[str, ...]:
    """Have a model compute in another type than its file's; before its weights are evaluated.

    Args:
        model: Its weights are lazy.
        wanted: One of `engine.settings.DTYPES`; `auto` is float32 where `fast_blas`, as far as memory allows it.
        fast_blas: Whether a fast BLAS multiplies float32 matrices.

    Returns:
        What to know of it, as sentences.
    """
    own = dtype_of(model)
    if wanted == "file" or (wanted == "auto" and not fast_blas):
        return ()
    computed = "float32" if wanted == "auto" else wanted
    if computed == own:
        return ()
    if wanted == "auto" and (refused := _too_large(model, own, computed)):
        return (refused,)
    model.set_dtype(getattr(mx, computed))
    times = _BYTES[computed] / _BYTES[own]
    return (f"The file's {own} is computed in {computed}: weights and KV take {times:g} times the bytes.",)


def _too_large(model: Any, own: str, computed: str) -> str:
    """Why a larger type is not taken without being asked for, empty where it may be."""
    free = memory_available()
    needed = sum(array.nbytes for array in _floating(model)) * _BYTES[computed] / _BYTES[own]
    if free is None or needed <= MEMORY_SHARE * free:
        return ""
    return (
        f"Computed in {own}: {computed} would be faster, but its weights would take more than half of the "
        f"{free / 2**30:.1f} GiB that are free. --dtype {computed} asks for it all the same."
    )


def memory_available() -> int | None:
    """Bytes that a program can take without swapping, as Linux estimates them; None where that isn't known."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = next((line.split()[1] for line in lines if line.startswith("MemAvailable:")), None)
    return int(found) * 1024 if found is not None else None


def _floating(model: Any) -> list[mx.array]:
    named = cast(list[tuple[str, mx.array]], tree_flatten(model.parameters()))
    return [array for _, array in named if mx.issubdtype(array.dtype, mx.floating)]
