"""How much logits may differ where the same tokens run through the model in other chunks or batches."""

from __future__ import annotations

from functools import cache

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

SHARES = {"float32": 4e-6, "float16": 8e-3, "bfloat16": 0.06}
"""Of the largest logit. Measured over 14 families with OpenBLAS: up to 8.7e-7 in float32, 0.023 in bfloat16; deep
models sum up more roundings. Wrong keys and values make differences of whole logits."""
COARSE = 1e-5
"""Error of a float32 product, as a share of its largest number, from which on it counts as one of 16 bits: a CPU's is
2e-7, and one in TF32, which has as many bits as float16, 3e-4 (emulated)."""


@cache
def product_error() -> float:
    """The error of a float32 product of several rows here, as a share of its largest number; measured once."""
    one, other = (np.random.default_rng(seed).standard_normal((256, 256)) for seed in (0, 1))
    one, other = one.astype(np.float32), other.astype(np.float32)
    truth = one.astype(np.float64) @ other.astype(np.float64)
    found = np.array(mx.array(one) @ mx.array(other))
    return float(np.abs(found - truth).max() / np.abs(truth).max())


def precision(dtype: str) -> str:
    """The type whose bounds hold for a computation: `float16` for float32 whose products are no better here.

    Args:
        dtype: Of the computation.
    """
    return "float16" if dtype == "float32" and product_error() > COARSE else dtype


def tf32_note(dtype: str) -> str:
    """That float32 is not computed in float32, a sentence; empty where it is."""
    if precision(dtype) == dtype:
        return ""
    return (
        f"float32 products are off by {product_error():.0e} here (TF32): numbers agree as far as in float16, and "
        "checks allow as much. MLX_ENABLE_TF32=0 computes in float32."
    )


def rounding_of(logits: NDArray[np.float32], dtype: str) -> float:
    """The largest difference of a logit that rounding explains.

    A fast library adds up the products of several rows in another order than those of one. The numbers of a path that
    ran in chunks then differ in their last bits from those of one that ran token by token.

    Args:
        logits: A row, of shape (vocabulary,).
        dtype: Of the computation.
    """
    return SHARES.get(precision(dtype), SHARES["float32"]) * float(np.abs(logits).max())
