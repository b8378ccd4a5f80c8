"""How much logits may differ where the same tokens run through the model in other chunks or batches."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SHARES = {"float32": 4e-6, "float16": 8e-3, "bfloat16": 0.06}
"""Of the largest logit. Measured over 14 families with OpenBLAS: up to 8.7e-7 in float32, 0.023 in bfloat16; deep
models sum up more roundings. Wrong keys and values make differences of whole logits."""


def rounding_of(logits: NDArray[np.float32], dtype: str) -> float:
    """The largest difference of a logit that rounding explains.

    A fast library adds up the products of several rows in another order than those of one. The numbers of a path that
    ran in chunks then differ in their last bits from those of one that ran token by token.

    Args:
        logits: A row, of shape (vocabulary,).
        dtype: Of the computation.
    """
    return SHARES.get(dtype, SHARES["float32"]) * float(np.abs(logits).max())
