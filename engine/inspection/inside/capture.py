"""Runs tokens of the tree again under taps, on a copy of the session's cache."""

from __future__ import annotations

import time
from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from engine.errors import Cancelled, StepError
from engine.inspection.inside.taps import Edits, Taps
from engine.model.forward import Runner, Stopped, never
from engine.records import CaptureFacts, Check
from engine.session.detached import copy_runner, run_at
from engine.session.session import Session
from engine.tree import ROOT

FLOAT32, LESS = 1e-5, 1e-2
"""Bounds of relative errors for models that compute in float32, and in fewer bits.

Measured on 101 tiny random models and on the bundled one: 1.4e-6 at most in float32, 8e-3 in bfloat16.
"""
QUANTIZED = 4e-2
"""With a quantized cache: mlx rounds the softmax within its quantized attention."""


@dataclass(slots=True)
class Capture:
    """The last tokens of a path, run once plainly and once under taps."""

    node: int
    ids: list[int]
    """The tokens that ran."""
    nodes: list[int]
    """Theirs."""
    depth: int
    """Tokens of the path, these included."""
    taps: list[Taps]
    """One for each forward: of all tokens, or of one each where a chunk would change the numbers."""
    logits: mx.array
    """After each token, float32, shape (tokens, vocabulary), evaluated."""
    plain: mx.array
    """The same without taps."""
    bound: float
    """For relative errors in the dtype that the model computes in."""
    ms: float
    """Of the tapped forward."""
    step_ms: float
    """Of the plain one."""
    note: str

    def forward_check(self) -> Check:
        """Whether the taps left the logits as they are."""
        error = float(np.array(mx.abs(self.logits - self.plain).max()))
        return Check("forward", error if np.isfinite(error) else float("inf"), 0.0)

    def facts(self, begun: float, family: str, *checks: Check) -> CaptureFacts:
        """What accompanies a view of this capture.

        Args:
            begun: `time.perf_counter()` when the command began.
            family: The model's architecture.
            checks: Those of the view, besides that of the forward.
        """
        ms = (time.perf_counter() - begun) * 1000
        return CaptureFacts((self.forward_check(), *checks), ms, self.step_ms, family, self.note)


def capture(
    session: Session,
    node: int,
    *,
    tokens: int = 1,
    attention: bool = False,
    parts: bool = False,
    edits: Edits | None = None,
    stopped: Stopped = never,
) -> Capture:
    """Run the last tokens of the path to a node again; the session doesn't change.

    Args:
        session: Has read a prompt.
        node: The last token's.
        tokens: How many to run under taps; fewer where the path is shorter.
        attention: Whether attention weights are computed.
        parts: Whether the layers' children are recorded.
        edits: Changes to the tapped forward.
        stopped: Polled before each chunk and forward.

    Raises:
        StepError: There is no such node, or it is the root.
        Cancelled: `stopped` returned True.
    """
    session.check_node(node)
    path = session.tree.nodes(node)[-tokens:]
    ids = [session.tree[each].token for each in path]
    runner, note = before(session, path[0], stopped)
    pieces = [[token] for token in ids] if runner.kv.chunks_matter else [ids]
    plain, _, step_ms = _run(copy_runner(runner), pieces, None, stopped)
    taps = [
        Taps(session.runner.model, attention=attention, parts=parts, edits=edits or Edits()) for _ in pieces
    ]
    logits, taps, ms = _run(runner, pieces, taps, stopped)
    bound = tolerance(session)
    return Capture(node, ids, path, session.tree[node].depth, taps, logits, plain, bound, ms, step_ms, note)


def before(session: Session, node: int, stopped: Stopped = never) -> tuple[Runner, str]:
    """A runner of its own whose cache holds the path up to a node, without the node's token.

    Returns:
        The runner, and why a part of the path was recomputed, empty where none was.
    """
    runner, _, note = before_and_cost(session, node, stopped)
    return runner, note


def before_and_cost(session: Session, node: int, stopped: Stopped = never) -> tuple[Runner, int, str]:
    """As `before`, with the number of tokens that were recomputed between the runner and the reason."""
    session.held.refuse(node, "views of the inside are")
    parent = session.tree[node].parent
    if parent == ROOT:
        return session.runner.fresh(), 0, ""
    detached = run_at(session, parent, stopped)
    runner = copy_runner(detached.runner) if detached.runner is session.runner else detached.runner
    why = f" ({detached.why})" if detached.why else ""
    note = f"{detached.recomputed:,} tokens of the path went through the model again{why}."
    return runner, detached.recomputed, note if detached.recomputed else ""


def tolerance(session: Session) -> float:
    """How far a number computed in another way may be from the model's own, relative."""
    if any(session.kv.quantized()) or session.kv.quantized_at(session.kv.offset):
        return QUANTIZED
    return FLOAT32 if session.facts.dtype == "float32" else LESS


def _run(
    runner: Runner, pieces: list[list[int]], taps: list[Taps] | None, stopped: Stopped
) -> tuple[mx.array, list[Taps], float]:
    """Run tokens; returns their logits, the taps, and the milliseconds."""
    begun = time.perf_counter()
    rows = []
    for index, piece in enumerate(pieces):
        if stopped():
            raise Cancelled
        if taps is None:
            rows.append(runner.forward_logits(piece))
            continue
        taps[index].caches = runner.kv.caches
        with taps[index].set():
            rows.append(runner.forward_logits(piece))
    logits = mx.concatenate(rows, axis=0)
    return logits, taps or [], (time.perf_counter() - begun) * 1000


def refuse(check: Check, family: str) -> StepError:
    """The error of a view whose check failed."""
    return StepError(
        f"The check `{check.name}` of this view failed for the architecture {family}: "
        f"off by {check.error:.2g} where {check.bound:.2g} is allowed{f' ({check.where})' if check.where else ''}.",
        "Nothing is shown that the model did not compute. Other views may still be there.",
    )
