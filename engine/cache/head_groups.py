"""Group sizes that divide a model's head sizes, so that its keys and values can be quantized."""

from __future__ import annotations

from collections.abc import Collection

from engine.settings import KV_GROUP_SIZES


def valid_group_sizes(sizes: Collection[int]) -> list[int]:
    """The group sizes of mlx-lm that divide all of some head sizes."""
    return [group for group in KV_GROUP_SIZES if all(size % group == 0 for size in sizes)]


def group_size_problem(sizes: Collection[int], wanted: int) -> str:
    """Why heads can't be cut into groups of a size, and which size to use instead; empty where they can.

    Args:
        sizes: Head sizes of the keys and values.
        wanted: Numbers that share a scale.
    """
    head_sizes = sorted(set(sizes))
    group_sizes = valid_group_sizes(head_sizes)
    if wanted in group_sizes:
        return ""
    heads = f"The heads of this model have {' and '.join(map(str, head_sizes))} numbers"
    if group_sizes:
        return f"{heads}, which can't be cut into groups of {wanted}. Use --kv-group-size {group_sizes[-1]}."
    names = ", ".join(map(str, KV_GROUP_SIZES))
    return f"{heads}, which can't be cut into groups of {names}: mlx-lm can't quantize them."
