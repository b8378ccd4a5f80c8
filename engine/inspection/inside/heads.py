"""Attention heads over a whole path: the triangle of weights of one, and scores of what each does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from engine.errors import StepError
from engine.inspection.inside.whole_path import ChunkAttention, Weights, run_path
from engine.model.forward import Stopped, never
from engine.protocol import (
    TRIANGLE_TOKENS,
    CaptureFacts,
    Floats,
    HeadScore,
    HeadsScored,
    Measuring,
    ReadTriangle,
    ScoreHeads,
    TriangleRead,
)
from engine.session.session import Session

LEAST = 2.0**-24
"""The smallest number of 16 bits: 0 is left for what is hidden."""


def read_triangle(
    session: Session, node: int, layer: int, head: int, stopped: Stopped = never
) -> Iterator[Measuring | TriangleRead]:
    """Run a path again and keep the weights of one head, from each token.

    Args:
        session: Has read a prompt; not changed.
        node: The path's last token.
        layer: From 0.
        head: From 0.
        stopped: Polled before each chunk.

    Yields:
        The progress, then the triangle.

    Raises:
        StepError: There is no such node, layer or head; the path is too long; the positions of its keys are not known.
        Cancelled: `stopped` returned True.
    """
    session.check_node(node)
    tokens = session.tree[node].depth
    if tokens > TRIANGLE_TOKENS:
        raise StepError(
            f"The path has {tokens:,} tokens: a head is drawn from each token of {TRIANGLE_TOKENS:,} at most.",
            "Look at an earlier token.",
        )
    kept = _TriangleRows(layer, head)
    for told in run_path(session, node, ReadTriangle.kind, kept.take, stopped):
        if isinstance(told, CaptureFacts):
            yield TriangleRead(node, layer, head, tokens, kept.weights(tokens), kept.sinks(), told)
        else:
            yield told


class _TriangleRows:
    """The rows of one head, each up to its own token."""

    def __init__(self, layer: int, head: int) -> None:
        self._layer, self._head = layer, head
        self._rows: list[Weights] = []
        self._sinks: list[Weights] = []

    def take(self, attention: ChunkAttention) -> None:
        """Keep the head's rows of a chunk."""
        if attention.run.layer != self._layer or len(self._rows) > attention.first:
            return  # another layer, or a second attention of this one
        weights = attention.weights
        if weights is None or not 0 <= self._head < weights.shape[0]:
            return
        rows = weights[self._head]
        self._rows += [rows[place, : attention.first + place + 1] for place in range(len(rows))]
        if (sinks := attention.sinks) is not None:
            self._sinks.append(sinks[self._head])

    def weights(self, tokens: int) -> Floats:
        """All rows, packed."""
        if len(self._rows) != tokens:
            raise StepError(
                f"Layer {self._layer + 1} has no head {self._head + 1} whose weights are known over the whole path.",
                "Choose another head.",
            )
        joined = np.concatenate(self._rows)
        packed = np.where(joined > 0, np.maximum(joined, LEAST), 0).astype("<f2")
        return Floats((len(packed),), packed.tobytes(), 16)

    def sinks(self) -> Floats:
        """The share of each row that the sink takes."""
        packed = np.concatenate([np.zeros(0), *self._sinks]).astype("<f2")
        return Floats((len(packed),), packed.tobytes(), 16)


def score_heads(session: Session, node: int, stopped: Stopped = never) -> Iterator[Measuring | HeadsScored]:
    """Run a path again and score each head on it.

    Args:
        session: Has read a prompt; not changed.
        node: The path's last token.
        stopped: Polled before each chunk.

    Yields:
        The progress, then the scores; `HeadScore` defines them.

    Raises:
        StepError: There is no such node, or it is the root.
        Cancelled: `stopped` returned True.
    """
    session.check_node(node)
    sums = _ScoreSums(session.tree.tokens(node))
    for told in run_path(session, node, ScoreHeads.kind, sums.take, stopped):
        if isinstance(told, CaptureFacts):
            yield HeadsScored(node, len(sums.ids), sums.scores(), sums.repeats, told)
        else:
            yield told


class _ScoreSums:
    """Sums of each score over the rows, by layer and score; no weights are kept."""

    def __init__(self, ids: Sequence[int]) -> None:
        self.ids = np.array(ids)
        self.repeats = sum(bool(self._after(at, at + 1).any()) for at in range(len(ids)))
        self._sums: dict[int, npt.NDArray[np.float64]] = {}
        self._rows: dict[int, int] = {}

    def take(self, attention: ChunkAttention) -> None:
        """Add a chunk of a layer."""
        layer, first = attention.run.layer, attention.first
        weights = attention.weights
        if weights is None or self._rows.get(layer, 0) != first:
            return  # positions unknown, or a second attention of the layer
        heads, tokens, end = weights.shape
        self._rows[layer] = first + tokens
        sums = self._sums.setdefault(layer, np.zeros((4, heads)))
        rows = np.arange(max(1 - first, 0), tokens)  # without the first token, which sees itself alone
        sums[0] += weights[:, rows, first + rows - 1].sum(axis=1, dtype=np.float64)
        sums[1] += (weights * self._after(first, end)).sum(axis=(1, 2), dtype=np.float64)
        sums[2] += weights[:, rows, 0].sum(axis=1, dtype=np.float64)
        sums[3] += _entropy(weights).sum(axis=(1, 2), dtype=np.float64)
        if (sinks := attention.sinks) is not None:
            sums[3] += _entropy(sinks).sum(axis=1, dtype=np.float64)

    def _after(self, first: int, end: int) -> npt.NDArray[np.bool_]:
        """For each token of a chunk, which tokens before it followed an earlier occurrence of the same token."""
        same = self.ids[first:end, None] == np.concatenate([[-1], self.ids[: end - 1]])
        found: npt.NDArray[np.bool_] = same & (np.arange(end) < np.arange(first, end)[:, None])
        return found

    def scores(self) -> tuple[HeadScore, ...]:
        """The means, of the layers that were taken to the end of the path."""
        count = len(self.ids)
        return tuple(
            HeadScore(
                layer,
                head,
                float(sums[0, head]) / max(count - 1, 1),
                float(sums[1, head]) / self.repeats if self.repeats else None,
                float(sums[2, head]) / max(count - 1, 1),
                float(sums[3, head]) / count,
            )
            for layer, sums in sorted(self._sums.items())
            if self._rows[layer] == count
            for head in range(sums.shape[1])
        )


def _entropy(shares: Weights) -> Weights:
    """What each share adds to the entropy, in bits."""
    logs: Weights = np.log2(shares, where=shares > 0, out=np.zeros_like(shares))
    return -shares * logs
