"""Into which groups the heads of a model can be cut, so that their keys and values can be quantized."""

from __future__ import annotations

from collections.abc import Collection

from engine.settings import KV_GROUP_SIZES


def fitting(sizes: Collection[int]) -> list[int]:
    """The group sizes of mlx-lm that divide all of some head sizes."""
    return [group for group in KV_GROUP_SIZES if all(size % group == 0 for size in sizes)]


def misfit(sizes: Collection[int], wanted: int) -> str:
    """Why heads can't be cut into groups of a size, and what would do; empty where they can.

    Args:
        sizes: Head sizes of the keys and values.
        wanted: Numbers that share a scale.
    """
    found = sorted(set(sizes))
    groups = fitting(found)
    if wanted in groups:
        return ""
    heads = f"The heads of this model have {' and '.join(map(str, found))} numbers"
    if groups:
        return f"{heads}, which can't be cut into groups of {wanted}. Use --kv-group-size {groups[-1]}."
    names = ", ".join(map(str, KV_GROUP_SIZES))
    return f"{heads}, which can't be cut into groups of {names}: mlx-lm can't quantize them."
