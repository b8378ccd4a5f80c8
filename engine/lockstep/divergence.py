"""How far two distributions over the same tokens are apart, in float64 from the whole rows of logits. numpy alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from engine.errors import StepError
from engine.sampling.ranking import Row, sum_of_products

LogProbs = npt.NDArray[np.float64]
"""Log-probabilities, float64, shape (vocabulary,)."""


def logprobs_of(logits: Row) -> LogProbs:
    """The float64 log-softmax of a row of logits.

    Raises:
        StepError: The row holds values that are not numbers.
    """
    wide = logits.astype(np.float64)
    wide -= wide.max()
    wide -= np.log(np.exp(wide).sum())
    if np.isnan(wide).any():
        raise StepError("The model's logits are not numbers here.", "Its weights or precision don't hold.")
    return wide


def kl_nats(one: LogProbs, other: LogProbs) -> float:
    """KL(P||Q) of two distributions, in nats: the sum of p (ln p - ln q).

    Rounding may leave it some 1e-17 below 0, which is told as 0. It is infinite where Q gives 0 to what P doesn't.

    Args:
        one: Of P.
        other: Of Q, over the same tokens.
    """
    probs = np.exp(one)
    live: npt.NDArray[Any] = probs > 0
    if live.all():
        return max(0.0, sum_of_products(probs, one - other))
    return max(0.0, sum_of_products(probs[live], one[live] - other[live]))


def entropy_bits(logprobs: LogProbs) -> float:
    """Shannon entropy in bits."""
    probs = np.exp(logprobs)
    live = probs > 0
    return max(0.0, -sum_of_products(probs[live], logprobs[live]) / float(np.log(2)))
