"""Build the tree of a recorded session anew, with its numbers, and run the path to where it is gone on from.

Nothing but token ids comes from the record. What the model makes of them is computed here, so that it can be compared
with what was recorded.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from engine.commands import Restore
from engine.errors import PromptError, StepError
from engine.model.forward import Stopped
from engine.records import Record, Restored, Restoring
from engine.session.node_logits import memory
from engine.session.session import Session
from engine.tree import ROOT

COMPARED = 16
"""Steps at the path's end that go through the model one by one, as they did, so that their logprobs are known."""
PATIENCE = 0.1
"""Seconds between two records of how far it is."""
MOST_NODES = 2_000_000
"""A tree in memory takes some 300 bytes a node."""


def restore(session: Session, asked: Restore, emit: Callable[[Record], None], stopped: Stopped) -> Restored:
    """Build a tree and stand at one of its nodes.

    Args:
        session: What it knew before is forgotten.
        asked: The tree.
        emit: Receives `Restoring` records.
        stopped: Asked before each chunk and step.

    Returns:
        What is known at the node.

    Raises:
        StepError: The tree doesn't hold together, or is too large.
        PromptError: There is no prompt, or an id has no embedding.
        Cancelled: `stopped` said so; the session has no prompt then.
    """
    begun = time.perf_counter()
    _check(session, asked)
    session.forget()
    try:
        _build(session, asked)
        logprobs = _run(session, asked.node, emit, stopped)
    except BaseException:
        session.forget()
        raise
    ms = (time.perf_counter() - begun) * 1000
    depth = session.tree[asked.node].depth
    return Restored(asked.node, depth, logprobs, session.next, session.reading(), memory(), ms)


def _check(session: Session, asked: Restore) -> None:
    if not asked.prompt:
        raise PromptError("The recorded session has no prompt.", "Begin with one: press p.")
    session.tokens.check([*asked.prompt, *(each.id for each in asked.nodes)])
    last = max((each.node for each in asked.nodes), default=0)
    if last > MOST_NODES:
        raise StepError(f"The recorded tree goes up to node {last:,}.", f"At most {MOST_NODES:,} are built.")


def _build(session: Session, asked: Restore) -> None:
    tree, parent = session.tree, ROOT
    for id in asked.prompt:
        parent = session.looker.grow(parent, id, "prompt")
    for each in asked.nodes:
        while len(tree) < each.node:
            tree.skip()
        if each.parent not in tree or session.looker.grow(each.parent, each.id, each.origin) != each.node:
            raise StepError(
                f"The recorded tree doesn't hold together at node {each.node}.",
                "It can be looked at, but not gone on with.",
            )
        tree[each.node].has_step = each.has_step
    for node, count in asked.rerolls:
        if node in tree:
            tree[node].reroll = count


def _run(session: Session, node: int, emit: Callable[[Record], None], stopped: Stopped) -> tuple[float, ...]:
    """Run the path: most of it in chunks, its last steps one by one; returns the logprobs of these."""
    session.check_node(node)
    facts, depth = session.facts, session.tree[node].depth
    if facts.hard_window and facts.context_window is not None and depth > facts.context_window:
        raise StepError(
            f"The recorded path has {depth:,} tokens, this model's window {facts.context_window:,}.",
            "Go to an earlier place of the recording, and go on from there.",
        )
    path, watch = session.tree.nodes(node), _Watch(session, node, emit, stopped)
    first = max(session.tree[node].start, len(path) - COMPARED)
    session.move(path[first - 1], watch)
    logprobs = []
    for each in path[first:]:
        logprobs.append(float(session.here.look.logprobs[session.tree[each].token]))
        session.move(each, watch)
    return tuple(logprobs)


class _Watch:
    """Tells how far it is whenever it is asked whether to stop."""

    def __init__(self, session: Session, node: int, emit: Callable[[Record], None], stopped: Stopped) -> None:
        self._session, self._emit, self._stopped = session, emit, stopped
        self._total = session.tree[node].depth
        self._told = float("-inf")

    def __call__(self) -> bool:
        if time.perf_counter() - self._told > PATIENCE:
            self._told = time.perf_counter()
            self._emit(Restoring(self._session.kv.offset, self._total))
        return self._stopped()
