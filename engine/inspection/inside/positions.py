"""What a wrong position does to a prediction, and what the causal mask does.

The model asks a cache for its offset and turns queries and keys, or picks a row of a table, by it. Here it is given
another number while the cache holds and returns the same keys.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from engine.errors import Cancelled, StepError
from engine.inspection.inside.capture import before, tolerance
from engine.inspection.inside.position_watch import PositionWatch, shifted
from engine.logits.readings import LN2
from engine.model.forward import Runner, Stopped, never
from engine.model.rounding import rounding_of
from engine.protocol import CaptureFacts, Check, PositionChange, PositionTried, TokenShift
from engine.sampling.ranking import Row, absolute_difference, checked_logprobs, rank_of, ranked
from engine.session.detached import copy_runner
from engine.session.session import Session

PIECE = 512
"""Tokens in a forward of the whole path."""
LOGITS = 1 << 30
"""Bytes of the logits of a forward without the mask, which can't be cut into pieces."""


def try_position(
    session: Session,
    node: int,
    change: PositionChange = "token",
    offset: int = 0,
    top: int = 8,
    until: int | None = None,
    stopped: Stopped = never,
) -> PositionTried:
    """Run a token with a wrong position, or its path with one or without the causal mask.

    Args:
        session: Has read a prompt; not changed.
        node: The token's.
        change: What is wrong.
        offset: What is added to positions; of no account for the mask.
        top: Tokens that are listed of each side.
        until: A node further down the path, whose tokens are seen without the mask; None for the token itself.
        stopped: Polled before each forward.

    Raises:
        StepError: There is no such node, or it is the root; the model has no positions, no attention whose mask can be
            taken away, or no such position; the path is too long for one forward.
        Cancelled: `stopped` returned True.
    """
    begun = time.perf_counter()
    session.check_node(node)
    runner, note = before(session, node, stopped)
    token, model = session.tree[node].token, session.runner.model
    step_begun = time.perf_counter()
    plain = np.array(copy_runner(runner).forward_logits([token])[0])
    step_ms = (time.perf_counter() - step_begun) * 1000
    watch = PositionWatch(model, position=runner.kv.offset)
    own = _row(copy_runner(runner), [[token]], 0, watch, stopped)
    use, by, exact = watch.use, 0 if change == "mask" else offset, change == "token"
    _refuse(session, change, watch)
    start, pieces, later = runner, [[token]], 0
    if not exact:
        start, watch = session.runner.fresh(), PositionWatch(model)
        pieces, later = _whole(session, node, until) if change == "mask" else (_pieces(session, node), 0)
        own = _row(session.runner.fresh(), pieces, 0, watch, stopped, later)
    changed = PositionWatch(model, position=start.kv.offset + by, unmasked=change == "mask")
    after = _row(start, pieces, by, changed, stopped, later)
    if change == "mask" and changed.computed_itself:
        raise StepError(
            f"{session.facts.family} computes its attention itself: its mask can't be taken away from outside.",
            "Wrong positions can still be tried.",
        )
    bound = 0.0 if exact else max(rounding_of(plain, session.facts.dtype), tolerance(session) * _top(plain))
    checks = (Check("forward", _apart(own, plain), bound), watch.same_keys(changed))
    facts = CaptureFacts(checks, (time.perf_counter() - begun) * 1000, step_ms, session.facts.family, note)
    difference = absolute_difference(own, after)
    largest = int(difference.argmax())
    return PositionTried(
        node, change, by, use, _tokens(session, own, after, top), _kl_bits(own, after), float(difference[largest]),
        session.tokens.text(largest, b"")[0], later, sum(map(len, pieces)), facts,
    )  # fmt: skip


def _refuse(session: Session, change: PositionChange, watch: PositionWatch) -> None:
    """Where the change has no meaning."""
    family = session.facts.family
    if change == "mask":
        if not watch.keys and not watch.computed_itself:
            raise StepError(
                f"{family} has no attention, and so no causal mask: its state takes in one token after another.",
                "Look at another view: press tab.",
            )
    elif watch.use.way == "none":
        raise StepError(
            f"{family} is never told a position: only the order in which tokens go through it counts.",
            "A wrong offset can't be given to it. Press tab for another view.",
        )


def _pieces(session: Session, node: int) -> list[list[int]]:
    ids = session.tree.tokens(node)
    return [ids[first : first + PIECE] for first in range(0, len(ids), PIECE)]


def _whole(session: Session, node: int, until: int | None) -> tuple[list[list[int]], int]:
    """A path in one piece, and how many of its tokens come after a node: without a mask nothing can be cut."""
    end = node if until is None else until
    session.check_node(end)
    ids, depth = session.tree.tokens(end), session.tree[node].depth
    if node not in session.tree.nodes(end):
        raise StepError(f"Node {end} does not come after node {node}.", "Name one further down its path.")
    needed, most = len(ids) * session.tokens.vocabulary * 4, LOGITS // 4 // session.tokens.vocabulary
    if needed > LOGITS:
        raise StepError(
            f"Without the mask {len(ids):,} tokens go through at once: {needed / LOGITS:.1f} GiB of logits.",
            f"Go to one of the first {most:,} tokens.",
        )
    return [ids], len(ids) - depth


def _row(
    runner: Runner,
    pieces: Sequence[Sequence[int]],
    by: int,
    watch: PositionWatch,
    stopped: Stopped,
    later: int = 0,
) -> Row:
    """The logits after some tokens but the `later` last ones, whose cache tells the model another offset."""
    for ids in pieces:
        if stopped():
            raise Cancelled
        caches = [shifted(cache, by, watch) for cache in runner.kv.caches]
        row = _forward(runner, ids, caches, by, watch, later)
    return row


def _forward(
    runner: Runner, ids: Sequence[int], caches: list[Any], by: int, watch: PositionWatch, later: int
) -> Row:
    try:
        with watch.set(len(ids)):
            logits = runner.model(mx.array([list(ids)]), cache=caches)
            runner.kv.advance(len(ids), chunk=len(ids) > 1)
            row = logits[0, -1 - later].astype(mx.float32)
            mx.eval(row, runner.kv.state())
    except (ValueError, IndexError, TypeError) as error:
        if not by:
            raise
        raise StepError(
            f"This model derives more than positions from the offset: with {by:+d} its forward fails ({error}).",
            "Try the view without the mask, or another view: press tab.",
        ) from error
    return np.array(row)


def _tokens(session: Session, own: Row, after: Row, top: int) -> tuple[TokenShift, ...]:
    ids = dict.fromkeys(int(id) for row in (own, after) for id in ranked(row, max(1, top)))
    one, other = (np.exp(checked_logprobs(row).astype(np.float64)) for row in (own, after))
    return tuple(
        TokenShift(
            id, session.tokens.text(id, b"")[0], float(one[id]), float(other[id]), rank_of(own, id), rank_of(after, id)
        )
        for id in ids
    )  # fmt: skip


def _kl_bits(own: Row, after: Row) -> float:
    one, other = (checked_logprobs(row).astype(np.float64) for row in (own, after))
    probs = np.exp(one)
    live = probs > 0
    return max(0.0, float((probs[live] * (one[live] - other[live])).sum()) / LN2)


def _apart(one: Row, other: Row) -> float:
    error = float(absolute_difference(one, other).max())
    return error if np.isfinite(error) else float("inf")


def _top(row: Row) -> float:
    return float(np.abs(row[np.isfinite(row)]).max(initial=0.0))
