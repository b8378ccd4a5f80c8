"""A runner that stands at any node of the tree, for work beside the session: its live cache stays as it is."""

from __future__ import annotations

import copy
from dataclasses import dataclass

from engine.cache.moves import Mover
from engine.errors import StepError
from engine.model.forward import Runner, Stopped, never
from engine.sampling.ranking import Row
from engine.session.session import Session
from engine.tree import ROOT


@dataclass(frozen=True, slots=True)
class DetachedPath:
    """A path in a cache, and the logits after it."""

    runner: Runner
    """To be read alone: it is the session's own where the session stands there."""
    row: Row
    recomputed: int
    """Tokens of the path that went through the model again."""
    why: str
    """Why tokens that the live cache holds could not be used, if so."""


def run_at(session: Session, node: int, stopped: Stopped = never) -> DetachedPath:
    """Have the path to a node in a cache.

    Where the session stands elsewhere, its cache is copied (MLX copies an array only once it is written), and the copy
    is moved as the session would move: by trimming, by what was kept, and by running the rest.

    Args:
        session: Stays where it stands.
        node: Any node but the root.
        stopped: Asked before each chunk and token that is recomputed.

    Raises:
        StepError: There is no such node, or it is the root.
        Cancelled: `stopped` said so.
    """
    if node not in session.tree or node == ROOT:
        raise StepError(f"There is no token number {node} to go on from.", "Begin with a prompt.")
    depth = session.tree[node].depth
    if node == session.node and session.kv.offset == depth:
        return DetachedPath(session.runner, session.logits, 0, "")
    if not session.cached:
        runner = session.runner.fresh()
        after = runner.path(session.tree.tokens(node), session.tree[node].start, stopped)
        return DetachedPath(runner, after, depth, "the session keeps no KV cache")
    row, runner = session.kept.get(node), copy_of(session.runner)
    mover = Mover(runner.kv, session.tree, 0)
    mover.kept = session.mover.kept
    cost = mover.move(session.node, node, depth if row is not None else depth - 1)
    recomputed = depth - runner.kv.offset
    if recomputed:
        row = runner.path(session.tree.tokens(node), session.tree[node].start, stopped)
    assert row is not None  # nothing was missing only where it was kept
    return DetachedPath(runner, row, recomputed, cost.note)


def copy_of(runner: Runner) -> Runner:
    """A runner whose caches hold what another's hold, and can be written without it."""
    found, kv = runner.fresh(), runner.kv
    found.kv.caches = copy.deepcopy(kv.caches)
    found.kv.set_offset(kv.offset, chunked_until=kv.chunked_until, layout=kv.layout)
    return found
