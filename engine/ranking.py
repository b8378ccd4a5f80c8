"""Rows of numbers, one for each token of the vocabulary, and their order. numpy alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

Row = npt.NDArray[np.float32]
"""Logits or log-probabilities, float32, shape (vocabulary,)."""
Values = npt.NDArray[np.floating[Any]]


def log_softmax(logits: Row) -> Row:
    """The float32 log-softmax of a row of logits; the sum is taken in float64."""
    shifted = logits - logits.max()
    total = np.exp(shifted, dtype=np.float32).sum(dtype=np.float64)
    return np.asarray(shifted - np.float32(math.log(total)), np.float32)


def ranked(row: Values, k: int) -> npt.NDArray[np.intp]:
    """Ids of the k largest values, largest first, ties by id.

    Args:
        row: Values of one kind, shape (vocabulary,).
        k: 1 to vocabulary.
    """
    if k >= row.size:
        return np.lexsort((np.arange(row.size), -row))
    edge = np.partition(row, row.size - k)[row.size - k]
    above = np.flatnonzero(row > edge)
    tied = np.flatnonzero(row == edge)[: k - above.size]
    found = np.concatenate([above, tied])
    return found[np.lexsort((found, -row[found]))]


def rank_of(row: Row, token: int) -> int:
    """1 for the largest value; equal values share the lowest rank."""
    return int((row > row[token]).sum()) + 1
