"""How far sums that are computed in few bits may be from those of the numbers themselves."""

from __future__ import annotations

import mlx.core as mx

UNITS = {mx.float32: 2.0**-24, mx.float16: 2.0**-11, mx.bfloat16: 2.0**-8}


def unit_of(dtype: mx.Dtype) -> float:
    """How far a type rounds a number at most, as a share of it."""
    return UNITS.get(dtype, UNITS[mx.float32])


def rounding(count: int, unit: float) -> float:
    """How far a sum is from the true one at most, as a share of the sizes of what is added (Higham 2002, chapter 3).

    Args:
        count: Roundings that a number goes through on its way into the sum.
        unit: Of the type that rounds.
    """
    return count * unit / (1 - count * unit)
