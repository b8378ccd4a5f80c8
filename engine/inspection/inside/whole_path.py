"""A whole path run again from nothing under taps, chunk by chunk: what each attention computes is handed on at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from engine.chunks import end_at, of_prompt
from engine.errors import Cancelled
from engine.frozen import frozen
from engine.inspection.inside.attention import AttentionChecks
from engine.inspection.inside.capture import tolerance
from engine.inspection.inside.taps import AttentionRun, Taps
from engine.model.forward import ChunkSizer, Runner, Stopped
from engine.protocol import CaptureFacts, Check, Measuring
from engine.session.session import Session

CHUNK_BYTES = 32 * 2**20
"""Weights of one layer's heads over a chunk, at most: a few arrays of this size exist at once."""

Weights = npt.NDArray[np.float32]


@frozen
class ChunkAttention:
    """One attention over one chunk of the path."""

    run: AttentionRun
    first: int
    """The chunk's first token in the path."""

    @property
    def weights(self) -> Weights | None:
        """Shape (heads, tokens of the chunk, tokens of the path up to its end); None where positions are unknown."""
        if self.run.positions is None:
            return None
        found: Weights = np.array(self.run.weights, dtype=np.float32)
        heads, tokens, _ = found.shape
        placed = np.zeros((heads, tokens, self.first + tokens), dtype=np.float32)
        placed[:, :, self.run.positions] = found
        return placed

    @property
    def sinks(self) -> Weights | None:
        """What the sinks take, shape (heads, tokens of the chunk); None without sinks."""
        return None if self.run.sinks is None else np.array(self.run.sinks, dtype=np.float32)


def run_path(
    session: Session, node: int, command: str, take: Callable[[ChunkAttention], None], stopped: Stopped
) -> Iterator[Measuring | CaptureFacts]:
    """Run the path to a node on a new cache, beside a run without taps: the logits after both must be the same.

    Args:
        session: Has read a prompt; not changed.
        node: The path's last token.
        command: Kind of the command that the progress is about.
        take: Is given each attention of each chunk, in their order.
        stopped: Polled before each chunk.

    Yields:
        The progress; at the end the checks of all that was taken.

    Raises:
        StepError: There is no such node, or it is the root.
        Cancelled: `stopped` returned True.
    """
    begun = time.perf_counter()
    session.check_node(node)
    ids = session.tree.tokens(node)
    tapped, plain = session.runner.fresh(), session.runner.fresh()
    pieces = _Pieces(session, node)
    checks = AttentionChecks(tolerance(session))
    rows: list[mx.array] = []
    step_ms = 0.0
    while (done := tapped.kv.offset) < len(ids):
        if stopped():
            raise Cancelled
        yield Measuring(command, done, len(ids), "tokens of the path")
        piece = ids[done : pieces.end(done)]
        last = done + len(piece) == len(ids)
        start = time.perf_counter()
        before = _forward(plain, piece, last)
        step_ms = (time.perf_counter() - start) * 1000
        after = _tapped(session, tapped, piece, last, checks, take)
        pieces.learn(len(piece), (time.perf_counter() - start) * 1000)
        rows = [before, after]
        mx.clear_cache()
    error = float(np.array(mx.abs(rows[0] - rows[1]).max()))
    forward = Check("forward", error if np.isfinite(error) else float("inf"), 0.0)
    ms = (time.perf_counter() - begun) * 1000
    yield CaptureFacts((forward, *checks.made()), ms, step_ms, session.facts.family, pieces.note)


def _tapped(
    session: Session,
    runner: Runner,
    piece: list[int],
    last: bool,
    checks: AttentionChecks,
    take: Callable[[ChunkAttention], None],
) -> mx.array:
    """Run a chunk under taps."""
    first = runner.kv.offset

    def taken(run: AttentionRun) -> None:
        checks.take(run)
        take(ChunkAttention(run, first))

    with Taps(session.runner.model, runner.kv.caches, take=taken).set():
        return _forward(runner, piece, last)


def _forward(runner: Runner, piece: list[int], last: bool) -> mx.array:
    """Run a chunk; its logits are computed after the path's last token alone, which is a chunk of its own."""
    return runner.forward_logits(piece) if last else runner.forward_chunk(piece)


class _Pieces:
    """Where a path is cut: into chunks that are bounded in memory, and its last token; as the session ran it where
    the cut changes the numbers."""

    def __init__(self, session: Session, node: int) -> None:
        depth = session.tree[node].depth
        matter = session.runner.kv.chunks_matter
        self.note = ""
        self._depth = depth
        self._chunks = session.tree.chunks(node) if matter else of_prompt(depth)
        limit = max(1, CHUNK_BYTES // (4 * max(1, session.facts.heads or 1) * depth))
        sizer = session.runner.chunk_sizer(limit)
        if sizer.size > limit:
            sizer = ChunkSizer(limit)
            self.note = f"The path ran in chunks of {limit} tokens, the session's are larger."
        self._sizer, self._limit = sizer, limit

    def end(self, done: int) -> int:
        """End of the piece that begins after `done` tokens."""
        end = min(end_at(self._chunks, done), self._depth - 1)
        return min(done + min(self._sizer.size, self._limit), end) if end > done else done + 1

    def learn(self, tokens: int, ms: float) -> None:
        """Adapt to the time of a piece."""
        self._sizer.learn(tokens, ms)
