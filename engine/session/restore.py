"""Rebuild the tree of a recorded session, with its node numbers, and run the path to the node to continue from.

Only token ids come from the recording. The model's numbers are computed again, so that they can be compared with the
recorded ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from importlib import import_module

from engine.errors import PromptError, StepError
from engine.protocol import Grown, Record, Restore, Restored, Restoring
from engine.session.context import Context
from engine.session.node_records import memory
from engine.session.session import Session
from engine.task import Stopped, Task

COMPARED = 16
"""Number of steps at the path's end that run one by one, as when recorded, so that their logprobs can be compared."""
REPORT_SECONDS = 0.1
"""Seconds between two progress records."""
MOST_NODES = 2_000_000
"""Limit of the tree's size; a node takes about 300 bytes of memory."""


def restore(context: Context, command: Restore, task: Task) -> Iterator[Record]:
    """Build a tree and move to one of its nodes, discarding the session's previous state.

    Yields:
        `Restored`, with the node's distribution and the logprobs of the path's last tokens. `Restoring` records are
        emitted before it.

    Raises:
        StepError: The tree is inconsistent, or too large.
        PromptError: There is no prompt, or the model has no embedding for an id.
        SettingsError: A logit bias names a token that the model doesn't have.
        Cancelled: The command was cancelled; the session has no prompt then.
    """
    begun, session = time.perf_counter(), context.session
    context.forget()
    _check(session, command)
    session.forget()
    try:
        _build(session, command)
        session.replies = dict(command.replies)
        logprobs = _run(session, command.node, context.emit, task.cancel.is_set)
    except BaseException:
        session.forget()
        raise
    ms = (time.perf_counter() - begun) * 1000
    depth = session.tree[command.node].depth
    yield Restored(command.node, depth, logprobs, session.next, session.kv_reading(), memory(), ms)


def _check(session: Session, command: Restore) -> None:
    if not command.nodes:
        raise PromptError("The recorded session has no prompt.", "Begin with a prompt in a new session.")
    session.check_settings(session.settings)
    session.tokens.check([grown.id for grown in command.nodes])
    last = max((grown.node for grown in command.nodes), default=0)
    if last > MOST_NODES:
        raise StepError(
            f"The recorded tree goes up to node {last:,}.", f"The program can rebuild {MOST_NODES:,} at most."
        )


def _build(session: Session, command: Restore) -> None:
    tree, add_token = session.tree, session.node_reader.add_token
    for grown in command.nodes:
        while len(tree) < grown.node:
            tree.add_gap()
        held = _held(session, grown)
        if (
            grown.parent not in tree
            or add_token(grown.parent, grown.id, grown.origin, grown.prompt_begin, held) != grown.node
            or (grown.origin == "intervened" and not tree[grown.node].held)
        ):
            raise StepError(
                f"The recorded tree doesn't hold together at node {grown.node}.",
                "You can look at the recording, but not continue it.",
            )
        tree[grown.node].has_step = grown.has_step
    for node, count in command.rerolls:
        if node in tree:
            tree[node].reroll = count


def _held(session: Session, grown: Grown) -> int | None:
    """Number of the intervention set that begins at a node; None if none does."""
    if not grown.interventions:
        return None
    changed = import_module("engine.inside.interventions").changed  # imported only if needed
    return session.held.add(grown.interventions, changed(session.runner.model, grown.interventions))


def _run(session: Session, node: int, emit: Callable[[Record], None], stopped: Stopped) -> tuple[float, ...]:
    """Run the path, most of it in chunks and its last steps one by one; returns the logprobs of these steps."""
    session.check_node(node)
    facts, depth = session.facts, session.tree[node].depth
    if facts.hard_window and facts.context_window is not None and depth > facts.context_window:
        raise StepError(
            f"The recorded path has {depth:,} tokens, this model's window {facts.context_window:,}.",
            "Go to an earlier place of the recording, and continue there.",
        )
    path, reporter = session.tree.nodes(node), _ProgressReporter(session, node, emit, stopped)
    first = max(session.tree[node].start, len(path) - COMPARED)
    session.move(path[first - 1], reporter)
    logprobs = []
    for child in path[first:]:
        logprobs.append(session.position.node_logits.masses.logprob(session.tree[child].token))
        session.move(child, reporter)
    return tuple(logprobs)


class _ProgressReporter:
    """A `Stopped` callback that emits a progress record when it is polled."""

    def __init__(self, session: Session, node: int, emit: Callable[[Record], None], stopped: Stopped) -> None:
        self._session, self._emit, self._stopped = session, emit, stopped
        self._total = session.tree[node].depth
        self._reported = float("-inf")

    def __call__(self) -> bool:
        if time.perf_counter() - self._reported > REPORT_SECONDS:
            self._reported = time.perf_counter()
            self._emit(Restoring(self._session.kv.offset, self._total))
        return self._stopped()
