"""Several changed forwards in one: rows of a batch over copies of one cache."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from engine.cache.kinds import kind_of
from engine.errors import StepError
from engine.inspection.inside.interventions.scaling import edited
from engine.inspection.inside.taps import Edits
from engine.model.forward import Runner

BYTES = 256 * 2**20
"""That the rows of one forward may take: copies of the KV, and logits."""
MOST_ROWS = 64
"""On two cores a forward of more rows than this takes no less time a row."""
_LOGITS = 3
"""Copies of a row's logits: the model's own, in float32, in host memory."""


def row_bytes(runner: Runner, tokens: int, vocabulary: int) -> int:
    """What one row of a forward over copies of a runner's cache takes, in bytes.

    Args:
        runner: Its cache is copied for each row.
        tokens: Of the row.
        vocabulary: Of the model.
    """
    return runner.kv.reading().allocated_bytes + 4 * _LOGITS * tokens * vocabulary


def rows_at_once(runner: Runner, tokens: int, vocabulary: int, alike: bool, kept: int = 0) -> int:
    """How many rows go through the model in one forward; 1 where a cache can't hold several.

    Args:
        runner: Its cache is copied for each row.
        tokens: Of each row.
        vocabulary: Of the model.
        alike: Whether all of the model has its rows along the first axis.
        kept: Bytes that are kept of each token.
    """
    if not alike or runner.kv.without_snapshots() is not None:
        return 1
    return max(1, min(MOST_ROWS, BYTES // (row_bytes(runner, tokens, vocabulary) + kept * tokens)))


def forward_rows(
    runner: Runner, pieces: list[list[int]], count: int, edits: list[Edits]
) -> npt.NDArray[np.float32]:
    """Run the same tokens in each row, changed.

    Args:
        runner: Its cache holds what is before the tokens; not written.
        pieces: The tokens, cut into forwards.
        count: Rows.
        edits: One for each forward.

    Returns:
        The logits after the last token, shape (rows, vocabulary), in host memory.

    Raises:
        StepError: The memory doesn't suffice.
    """
    copied = runner.copy()
    if count > 1:
        copied.kv.caches = [kind_of(cache).repeat(cache, count) for cache in runner.kv.caches]
    logits: Any = None
    try:
        for piece, each in zip(pieces, edits, strict=True):
            with edited(runner.model, each).set():
                logits = runner.model(mx.array([piece] * count), cache=copied.kv.caches)
                copied.kv.advance(len(piece), chunk=len(piece) > 1)
                logits = logits[:, -1].astype(mx.float32)
                mx.eval(logits, copied.kv.state())
    except (RuntimeError, MemoryError) as error:
        if "alloc" not in str(error).lower():
            raise
        raise StepError("The memory doesn't suffice for the batch.", "Use a shorter context.") from error
    found = np.array(logits)
    mx.clear_cache()
    return found
