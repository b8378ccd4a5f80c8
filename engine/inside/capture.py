"""Runs tokens of the tree again under taps, on a copy of the session's cache."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from engine.errors import Cancelled, StepError
from engine.inside.taps import Edits, LayerRun, Taps
from engine.model.forward import Runner, precision
from engine.model.layers import Patch, after_layers
from engine.protocol import CaptureFacts, Check
from engine.session.session import Session, run_at
from engine.task import Stopped, never
from engine.tree import ROOT, Chunks, chunk_end

FLOAT32, LESS = 1e-5, 1e-2
"""Bounds of relative errors for models that compute in float32, and in fewer bits.

Measured on 101 tiny random models and on the bundled one: 1.4e-6 at most in float32, 8e-3 in bfloat16.
"""
DEPTH = 8
"""Layers of the deepest of these."""
SHORTER = (
    "Tokens that this cache took in as a chunk can't be run again one by one with the same numbers: left out."
)
QUANTIZED = 4e-2
"""With a quantized cache: mlx rounds the softmax within its quantized attention."""


class Capture(Struct):
    """The last tokens of a path, run once plainly and once under taps."""

    node: int
    ids: list[int]
    """The tokens that ran."""
    nodes: list[int]
    """Theirs."""
    depth: int
    """Tokens of the path, these included."""
    taps: list[Taps]
    """One for each forward: of all tokens, or of fewer where such a chunk would change the numbers."""
    logits: mx.array
    """After each token, float32, shape (tokens, vocabulary), evaluated."""
    plain: mx.array
    """The same without taps."""
    bound: float
    """For relative errors in the dtype that the model computes in."""
    again: float
    """For those of logits that were computed once more."""
    ms: float
    """Of the tapped forward."""
    step_ms: float
    """Of the plain one."""
    note: str
    away: float | None = None
    """How far the plain forward's last logits are from those that the session computed, relative; None where these are
    no more kept."""

    def facts(self, begun: float, session: Session, *checks: Check) -> CaptureFacts:
        """What accompanies a view of this capture.

        Args:
            begun: `time.perf_counter()` when the command began.
            session: That the capture was taken of.
            checks: Those of the view, besides those of the forward.
        """
        ms = (time.perf_counter() - begun) * 1000
        changed = largest_difference(np.array(self.logits), np.array(self.plain))  # by the taps
        found = [Check("forward", changed, 0.0), *checks]
        if self.away is not None:  # from what the session computed, in chunks and steps of its own
            where = "cut into other chunks than before" if self.away > self.again else ""
            found.insert(1, Check("session", self.away, self.again, where))
        return CaptureFacts(tuple(found), ms, self.step_ms, session.facts.family, self.note, session.title)


def capture(
    session: Session,
    node: int,
    *,
    tokens: int = 1,
    attention: bool = False,
    parts: bool = False,
    streams: bool = True,
    edits: Edits | None = None,
    also: Sequence[Patch] = (),
    stopped: Stopped = never,
) -> Capture:
    """Run the last tokens of the path to a node again; the session doesn't change.

    Args:
        session: Has read a prompt.
        node: The last token's.
        tokens: How many to run under taps; fewer where the path is shorter, or where the cut into chunks changes the
            numbers: then those that the session ran one by one, at least one.
        attention: Whether attention weights are computed.
        parts: Whether the layers' children are recorded.
        streams: Whether what the layers are given and return is recorded.
        edits: Changes to the tapped forward.
        also: Taps of a view's own, set with the others.
        stopped: Polled before each chunk and forward.

    Raises:
        StepError: There is no such node, or it is the root.
        Cancelled: `stopped` returned True.
    """
    session.check_node(node)
    depth, chunks = session.tree[node].depth, session.tree.chunks(node)
    stepped = depth - (chunks[-1][1] if chunks else 0)
    shorter = session.kv.chunks_matter and max(1, stepped) < min(tokens, depth)
    path = session.tree.nodes(node)[-max(1, stepped) if shorter else -tokens :]
    ids = [session.tree[each].token for each in path]
    runner, _, note = runner_before(session, path[0], stopped)
    if shorter:
        note = f"{note} {SHORTER}" if note else SHORTER
    pieces = [[token] for token in ids] if runner.kv.chunks_matter else [ids]
    plain, _, step_ms = _run(runner.copy(), pieces, stopped)
    bound, again, _ = bounds(session)
    before = session.row_at(node)
    away = None if before is None else relative_error(np.array(plain[-1]), before)
    if before is not None and away is not None and away > again and pieces == [ids]:
        # plamo3's chunks see more than its ring holds
        pieces = as_run(chunks, depth, ids)
        plain, _, step_ms = _run(runner.copy(), pieces, stopped)
        away = relative_error(np.array(plain[-1]), before)
    tapped = partial(
        Taps, runner.model, attention=attention, parts=parts, edits=edits, also=also, streams=streams
    )
    logits, taps, ms = _run(runner, pieces, stopped, tapped)
    return Capture(node, ids, path, depth, taps, logits, plain, bound, again, ms, step_ms, note, away)


def runner_before(session: Session, node: int, stopped: Stopped = never) -> tuple[Runner, int, str]:
    """A runner of its own whose cache holds the path up to a node, without the node's token.

    Returns:
        The runner, how many tokens of the path were recomputed, and why; empty where none was.
    """
    session.held.refuse(node, "views of the inside are")
    parent = session.tree[node].parent
    if parent == ROOT:
        return session.runner.fresh(), 0, ""
    detached = run_at(session, parent, stopped)
    runner = detached.runner.copy() if detached.runner is session.runner else detached.runner
    why = f" ({detached.why})" if detached.why else ""
    if not detached.recomputed:
        return runner, 0, ""
    tokens = "1 token" if detached.recomputed == 1 else f"{detached.recomputed:,} tokens"
    return runner, detached.recomputed, f"{tokens} ran again{why}."


def as_run(chunks: Chunks, depth: int, ids: list[int]) -> list[list[int]]:
    """The last tokens of a path, cut as the session ran them."""
    begin, pieces = depth - len(ids), []
    while begin < depth:
        end = max(chunk_end(chunks, begin), begin + 1)
        pieces.append(ids[begin - depth : end - depth or None])
        begin = end
    return pieces


class ErrorBounds(NamedTuple):
    """How large relative errors may be that rounding explains."""

    own: float
    """Of a number computed in another way than the model's own."""
    again: float
    """Of logits that were computed once more, in another chunk or after another cut."""
    twice: float
    """Of the difference of two whole forwards, both of them rounded."""


def bounds(session: Session) -> ErrorBounds:
    """The bounds for a session's model and its cache as it is now.

    The roundings of a whole forward add up to more than in `DEPTH` layers: each layer rounds anew, and the sum of
    independent errors grows as the root of their number. Random layers of 64 heads in bfloat16, with sums in another
    order: 0.9e-2 at 8 layers, 1.1e-2 at 24, 1.7e-2 at 94.
    """
    own = FLOAT32 if precision(session.facts.dtype) == "float32" else LESS
    if session.kv.rounded:
        own = QUANTIZED
    deeper = max(1.0, math.sqrt(session.facts.layers / DEPTH))
    return ErrorBounds(own, max(10 * FLOAT32, 2 * own) * deeper, 2 * own * deeper)


def relative_error(row: npt.NDArray[np.float32], truth: npt.NDArray[np.float32]) -> float:
    """The largest difference of two rows of logits, as a share of the largest logit."""
    largest = float(np.abs(truth[np.isfinite(truth)]).max(initial=1e-9))
    return largest_difference(row, truth) / largest


def largest_difference(first: npt.NDArray[np.float32], second: npt.NDArray[np.float32]) -> float:
    """The largest difference of two arrays of logits; infinite where one is not a number.

    Equal ones differ by 0 where both are -inf: phi3small's logits of tokens that it never predicts.
    """
    differ = first != second
    error = float(np.abs(first[differ] - second[differ]).max(initial=0.0))
    return error if np.isfinite(error) else float("inf")


def _run(
    runner: Runner, pieces: list[list[int]], stopped: Stopped, tapped: Callable[..., Taps] | None = None
) -> tuple[mx.array, list[Taps], float]:
    """Run tokens, each piece under taps of its own where these are wanted.

    Returns:
        Their logits, the taps, and the milliseconds.
    """
    begun = time.perf_counter()
    rows: list[mx.array] = []
    taps: list[Taps] = []
    for piece in pieces:
        if stopped():
            raise Cancelled
        if tapped is None:
            rows.append(runner.forward_logits(piece))
            continue
        taps.append(tapped(caches=runner.kv.caches))
        with taps[-1].set():
            rows.append(runner.forward_logits(piece))
    return mx.concatenate(rows, axis=0), taps, (time.perf_counter() - begun) * 1000


def refuse(check: Check, family: str) -> StepError:
    """The error of a view whose check failed."""
    return StepError(
        f"The check `{check.name}` of this view failed for the architecture {family}: "
        f"off by {check.error:.2g} where {check.bound:.2g} is allowed{f' ({check.where})' if check.where else ''}.",
        "A view that fails its check is not shown. Others may still work.",
    )


# ---- the end of the model over residual streams that a tap has seen ----------------------------


def tail(model: Any, states: mx.array, layers: Mapping[int, LayerRun]) -> mx.array:
    """The logits that the model's own code computes after its last layer.

    Args:
        model: As mlx_lm loads it.
        states: Residual streams, shape (..., rows, size); gemma3n has several, an axis before the rows.
        layers: Of a forward; what else the layers returned is handed on.

    Returns:
        Float32, shape (rows, vocabulary), lazy.
    """
    returned = {index: run.result for index, run in layers.items()}
    return after_layers(model, states[..., None, :], returned)[:, -1, :].astype(mx.float32)


def together(facts: Sequence[CaptureFacts]) -> CaptureFacts:
    """The facts of several captures together: the worst of each check, and the time of all."""
    worst: dict[str, Check] = {}
    for check in (check for each in facts for check in each.checks):
        worst[check.name] = max(worst.get(check.name, check), check, key=lambda one: one.error - one.bound)
    return replace(facts[0], checks=tuple(worst.values()), ms=sum(each.ms for each in facts))
