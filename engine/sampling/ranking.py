"""Rows of numbers, one per token of the vocabulary, and their order. Uses numpy, not MLX."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.errors import StepError

Ids = npt.NDArray[np.intp]
"""Token ids, or indices in a row."""
Row = npt.NDArray[np.float32]
"""Logits or log-probabilities, float32, shape (vocabulary,)."""
Rows = npt.NDArray[np.float32]
"""Logits or log-probabilities of several positions, shape (positions, vocabulary)."""
Values = npt.NDArray[np.floating[Any]]
GROUP = 64
"""Maximum group size: to find the largest values, the maximum of each group is computed first. That takes 0.1 ms for
256,000 values instead of 1.6, and 0.01 ms for 4,096 instead of 0.03."""
AT_ONCE = 2**17
"""Number of values of several rows to rank in one array operation: 32 rows of 4,096."""
FEW = 4096
"""Maximum number of values to sort at once; there are more only if many are equal."""
BLOCK = 32_768
"""Number of values of a row to process at once, so that they stay in the processor's cache: saves a tenth of the
time."""
LN2 = math.log(2)
LEAST_LOG = -1000.0
"""Replaces the logarithm of 0 in sums: e**-1000 is 0, and 0 * -1000 is 0 while 0 * -inf is nan."""
LEAST_REST = 2.0**-20
"""If the probability of all other tokens is above this, it is computed as 1 minus that of the given ones, still 100
times as exact as float32 logprobs. Otherwise the others are summed, which takes as long as the first sum."""


def blocks(rows: Sequence[Row] | Rows) -> Iterator[Rows]:
    """Split rows into arrays of as many rows as fit into the processor's cache; rows of one array are sliced."""
    most = max(1, AT_ONCE // rows[0].size) if len(rows) else 1
    for begin in range(0, len(rows), most):
        block = rows[begin : begin + most]
        if isinstance(block, np.ndarray):
            yield block
        else:
            yield block[0][None] if len(block) == 1 else np.stack(block)


class Masses:
    """Probabilities of a row of logits, summed in float64; all sums are computed when the first is needed.

    Args:
        logits: Logits, float32, shape (vocabulary,); not modified.
    """

    def __init__(self, logits: Row) -> None:
        self.logits = logits

    @cached_property
    def top(self) -> np.float32:
        """The largest logit; nan if any logit is nan."""
        top: np.float32 = self.logits.max()
        return top

    @cached_property
    def barred(self) -> bool:
        """True if the model bars tokens, so that their logprob is -inf."""
        return bool(self.logits.min() - self.top == -np.inf)

    @cached_property
    def logprobs(self) -> Row:
        """The log-softmax of the logits, float32, shape (vocabulary,)."""
        return self.logprobs_of(slice(None))

    def logprobs_of(self, ids: Ids | slice) -> Row:
        """The log-softmax of some tokens, float32, shape (tokens,)."""
        shifted: Row = self.logits[ids] - self.top
        shifted -= self._log_weight
        return shifted

    def logprob(self, id: int) -> float:
        """The log-softmax of a token."""
        return float(self.logits[id] - self.top - self._log_weight)

    @property
    def weight(self) -> float:
        """The sum of e**(logit - top) over all tokens."""
        return self._sums[0]

    @property
    def _log_weight(self) -> np.float32:
        return np.float32(math.log(self.weight))

    @property
    def entropy_bits(self) -> float:
        """The Shannon entropy of the probabilities: -sum p log2 p."""
        weight, products = self._sums
        return max(0.0, math.log(weight) - products / weight) / LN2

    def unbarred(self) -> tuple[Ids | None, Masses]:
        """The tokens that the model doesn't bar, and their masses, which have the same sums; None for all tokens."""
        if not self.barred:
            return None, self
        ids = np.flatnonzero(self.logprobs != -np.inf)
        part = Masses(self.logits[ids])
        part.top, part._sums = self.top, self._sums
        return ids, part

    def without(self, ids: Ids) -> float:
        """The total probability of all tokens except some."""
        left = 1 - float(self._weights(self.logits[ids]).sum()) / self.weight
        return left if left > LEAST_REST else sum_without(self._weights(self.logits), ids) / self.weight

    def _weights(self, logits: Row) -> npt.NDArray[np.float64]:
        shifted = np.subtract(logits, self.top, dtype=np.float64)
        return np.exp(shifted, out=shifted)

    @cached_property
    def _sums(self) -> tuple[float, float]:
        """The sum of the weights, and of each weight times its logarithm."""
        weight = products = 0.0
        for begin in range(0, self.logits.size, BLOCK):
            shifted = self.logits[begin : begin + BLOCK].astype(np.float64)  # faster than in the subtraction
            shifted -= self.top
            if self.barred:
                np.maximum(shifted, LEAST_LOG, out=shifted)
            weights = np.exp(shifted)
            weight += float(weights.sum())
            products += sum_of_products(weights, shifted)
        return weight, products


def checked_masses(logits: Row) -> Masses:
    """The probabilities of a model's row of logits, shape (vocabulary,).

    Raises:
        StepError: The row contains nan or inf.
    """
    masses = Masses(logits)
    if not math.isfinite(masses.top):  # nan if any value is
        raise StepError(
            "The model's logits are not numbers here.",
            "The weights may be damaged, or the precision too low: try --dtype float32.",
        )
    return masses


def checked_logprobs(logits: Row) -> Row:
    """The float32 log-softmax of a model's row of logits, shape (vocabulary,).

    Raises:
        StepError: The row contains nan or inf.
    """
    return checked_masses(logits).logprobs


def sum_without(masses: npt.NDArray[np.float64], places: Ids) -> float:
    """Set the masses at some indices to 0, and return the sum of the rest."""
    masses[places] = 0.0
    return float(masses.sum())


def ranked(row: Values, k: int) -> Ids:
    """Ids of the k largest values, largest first, ties by id; intp, shape (min(k, vocabulary),).

    Args:
        row: Floating-point values, shape (vocabulary,).
        k: 1 or more.
    """
    if k >= row.size:
        return np.lexsort((np.arange(row.size), -row))
    group = max(1, min(GROUP, row.size // (2 * k)))
    highest = row[: row.size // group * group].reshape(group, -1).max(axis=0)
    # at least k values are not below the k-th largest of these maxima, and usually not many more
    ids = np.flatnonzero(row >= np.partition(highest, highest.size - k)[highest.size - k])
    if ids.size <= FEW:
        return ids[np.argsort(-row[ids], kind="stable")[:k]]
    # Selecting is slow if most values are equal, as those of cut tokens are: select only among the others.
    live = np.flatnonzero(row > row.min())
    if k < live.size:
        ids = live[_largest(row[live], k)]
    else:
        lowest = np.flatnonzero(row == row.min())[: k - live.size]
        ids = np.concatenate([live, lowest])
    return ids[np.lexsort((ids, -row[ids]))]


def ranked_rows(rows: Rows, k: int) -> list[Ids]:
    """Apply `ranked` to each row; short rows share a few array operations.

    Args:
        rows: Values, shape (positions, vocabulary).
        k: 1 or more.
    """
    count, size = rows.shape
    width = size // GROUP
    if count > 1 and k <= width:
        highest = rows[:, : width * GROUP].reshape(count, GROUP, width).max(axis=1)
        edges = np.partition(highest, width - k, axis=1)[:, width - k]
        places = (rows >= edges[:, None]).ravel().nonzero()[0]
        of, ids = np.divmod(places, size)
        counts = np.bincount(of, minlength=count)
        if counts.min() >= k and ids.size <= FEW:
            ids = ids[np.lexsort((ids, -rows.ravel()[places], of))]
            return [
                ids[end - each : end - each + k] for each, end in zip(counts, counts.cumsum(), strict=True)
            ]
    return [ranked(row, k) for row in rows]


def _largest(values: Values, k: int) -> Ids:
    """Indices of the k largest values, in no particular order; of values tied at the edge, the first ones."""
    edge = np.partition(values, values.size - k)[values.size - k]
    above = np.flatnonzero(values > edge)
    return np.concatenate([above, np.flatnonzero(values == edge)[: k - above.size]])


def rank_of(row: Row, token: int) -> int:
    """Rank of a token, 1 for the largest value; tied values share the lowest rank."""
    return int(np.count_nonzero(row > row[token])) + 1


def sum_of_products(one: Values, other: Values) -> float:
    """Dot product of two rows of probabilities; 0.1 ms for 150,000 values.

    numpy's BLAS would split it between threads and take 4 to 8 ms if another program uses the second core.
    """
    return float(np.einsum("i,i", one, other))


def absolute_difference(one: Row, other: Row) -> Row:
    """Absolute difference of two rows, float32, shape (vocabulary,); 0 for tokens that both bar."""
    with np.errstate(invalid="ignore"):  # infinity minus infinity
        apart: Row = np.where(one == other, np.float32(0), np.abs(one - other))
    return apart
