"""A runner whose cache holds the path to any node of the tree, while the session's live cache doesn't change."""

from __future__ import annotations

from engine.cache.moves import Mover
from engine.errors import StepError
from engine.frozen import frozen
from engine.model.forward import Runner, Stopped, never
from engine.sampling.ranking import Row
from engine.session.session import Session
from engine.tree import ROOT


@frozen
class DetachedPath:
    """A cache that holds a path, and the logits after it."""

    runner: Runner
    """Read-only: it is the session's own at the session's current node."""
    row: Row
    recomputed: int
    """Tokens of the path that went through the model again."""
    why: str
    """Why tokens in the live cache could not be used, empty if they could."""


def run_at(session: Session, node: int, stopped: Stopped = never) -> DetachedPath:
    """Bring the path to a node into a cache, and compute the logits after it.

    Unless it is the session's current node, the live cache is copied (MLX copies an array only when it is written), and
    the copy is moved as the session would move: by trimming, by restoring kept KV, and by running the rest.

    Args:
        session: Not changed.
        node: Any node but the root.
        stopped: Polled before each chunk and token that is recomputed.

    Raises:
        StepError: There is no such node, or it is the root.
        Cancelled: `stopped` returned True.
    """
    if node not in session.tree or node == ROOT:
        raise StepError(f"There is no token number {node} to go on from.", "Begin with a prompt.")
    depth = session.tree[node].depth
    if node == session.node and session.kv.offset == depth:
        return DetachedPath(session.runner, session.logits, 0, "")
    if not session.cached:
        runner = session.runner.fresh()
        after = session.run_path(runner, node, stopped)
        return DetachedPath(runner, after, depth, "the session keeps no KV cache")
    row, runner = session.kept_logits.get(node), session.runner.copy()
    mover = Mover(runner.kv, session.tree, 0)
    mover.store = session.mover.store
    runner.compute = session.held.compute(session.tree[node].held)
    cost = mover.move(session.node, node, depth if row is not None else depth - 1)
    recomputed = depth - runner.kv.offset
    if recomputed:
        row = session.run_path(runner, node, stopped)
    assert row is not None  # without kept logits the last token was recomputed
    return DetachedPath(runner, row, recomputed, cost.note)


def copy_runner(runner: Runner) -> Runner:
    """A runner whose caches hold what another's hold, and can be written independently."""
    return runner.copy()
