"""Rows of numbers, one per token of the vocabulary, and their order. numpy alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.errors import StepError

Row = npt.NDArray[np.float32]
"""Logits or log-probabilities, float32, shape (vocabulary,)."""
Values = npt.NDArray[np.floating[Any]]
GROUP = 64
"""Values of which the largest is found first, to rank the largest of all: 0.1 ms of 256,000 instead of 1.6."""
FEW = 4096
"""Values that are sorted whole: there are more where many are equal."""


def log_softmax(logits: Row) -> Row:
    """The float32 log-softmax of a row of logits; the sum is taken in float64."""
    shifted = logits - logits.max()
    total = np.exp(shifted, dtype=np.float32).sum(dtype=np.float64)
    return np.asarray(shifted - np.float32(math.log(total)), np.float32)


def checked_logprobs(logits: Row) -> Row:
    """The float32 log-softmax of a model's row of logits, shape (vocabulary,).

    Raises:
        StepError: The row holds values that are not numbers.
    """
    if np.isnan(logits).any():
        raise StepError("The model's logits are not numbers here.", "Its weights or precision don't hold.")
    return log_softmax(logits)


def ranked(row: Values, k: int) -> npt.NDArray[np.intp]:
    """Ids of the k largest values, largest first, ties by id; intp, shape (min(k, vocabulary),).

    Args:
        row: Values of one kind, floating point, shape (vocabulary,).
        k: 1 or more.
    """
    if k >= row.size:
        return np.lexsort((np.arange(row.size), -row))
    highest = row[: row.size // GROUP * GROUP].reshape(GROUP, -1).max(axis=0)
    if k <= highest.size:  # as many values are at least as large as the k-th largest of these
        ids = np.flatnonzero(row >= np.partition(highest, highest.size - k)[highest.size - k])
        if k <= ids.size <= FEW:
            return ids[np.lexsort((ids, -row[ids]))][:k]
    # Selecting is slow where most values are equal, as those of cut tokens are: select among the others alone.
    live = np.flatnonzero(row > row.min())
    if k < live.size:
        ids = live[_largest(row[live], k)]
    else:
        lowest = np.flatnonzero(row == row.min())[: k - live.size]
        ids = np.concatenate([live, lowest])
    return ids[np.lexsort((ids, -row[ids]))]


def _largest(values: Values, k: int) -> npt.NDArray[np.intp]:
    """Places of the k largest of some values, in no order; of equals at the edge the first."""
    edge = np.partition(values, values.size - k)[values.size - k]
    above = np.flatnonzero(values > edge)
    return np.concatenate([above, np.flatnonzero(values == edge)[: k - above.size]])


def rank_of(row: Row, token: int) -> int:
    """1 for the largest value; equal values share the lowest rank."""
    return int((row > row[token]).sum()) + 1


def sum_of_products(one: Values, other: Values) -> float:
    """The scalar product of two rows of probabilities, in 0.1 ms of 150,000.

    numpy's BLAS divides it between threads: 4 to 8 ms where another program has the second core, and the thread spins.
    """
    return float(np.einsum("i,i", one, other))


def absolute_difference(one: Row, other: Row) -> Row:
    """The absolute difference of two rows, float32, shape (vocabulary,); 0 for tokens that both bar."""
    with np.errstate(invalid="ignore"):  # infinity less infinity
        apart: Row = np.where(one == other, np.float32(0), np.abs(one - other))
    return apart
