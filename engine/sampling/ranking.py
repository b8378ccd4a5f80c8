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
    # Selecting is slow where most values are equal, as all that was cut are: look at the others alone.
    live = np.flatnonzero(row > row.min())
    if k < live.size:
        found = live[_largest(row[live], k)]
    else:
        lowest = np.flatnonzero(row == row.min())[: k - live.size]
        found = np.concatenate([live, lowest])
    return found[np.lexsort((found, -row[found]))]


def _largest(values: Values, k: int) -> npt.NDArray[np.intp]:
    """Places of the k largest of some values, in no order; of equals at the edge the first."""
    edge = np.partition(values, values.size - k)[values.size - k]
    above = np.flatnonzero(values > edge)
    return np.concatenate([above, np.flatnonzero(values == edge)[: k - above.size]])


def rank_of(row: Row, token: int) -> int:
    """1 for the largest value; equal values share the lowest rank."""
    return int((row > row[token]).sum()) + 1


def change(one: Row, other: Row) -> Row:
    """How far two rows are apart, absolute, number by number; tokens that both bar are not apart."""
    with np.errstate(invalid="ignore"):  # infinity less infinity
        apart: Row = np.where(one == other, np.float32(0), np.abs(one - other))
    return apart
