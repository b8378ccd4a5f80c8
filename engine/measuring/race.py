"""The race: the same tokens with and without a KV cache, in alternating steps, both measured.

Both lanes have their own caches, separate from the session's. They follow the session's path to its end; then the
cached lane picks the tokens, with the session's settings and draws, and the uncached lane's picks are compared with
them. End-of-sequence tokens are treated as any other: a race continues to its length.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from engine.errors import Cancelled, StepError
from engine.model.forward import Runner
from engine.model.load import Loaded
from engine.protocol import Measuring, RaceEnded, RaceOpened, RaceStep
from engine.sampling.ranking import Row, absolute_difference
from engine.session.node_records import NodeReader
from engine.session.session import Session
from engine.task import Stopped, never
from engine.tree import ROOT, TokenTree, cut_chunks, prompt_chunks

WARM_UP_TOKENS = 16
WARM_UP_ROUNDS = 3
HOW = (
    "Each step is one forward, fenced, until its logits are in host memory: the last token over the cache, against"
    " the whole sequence in fresh caches, with the logits of all its tokens; sampling isn't in it. The lanes take turns"
    " at every length, and the one that goes first changes. Both were warmed up."
)


def race(
    loaded: Loaded, session: Session, first: int, last: int, stopped: Stopped = never
) -> Iterator[Measuring | RaceOpened | RaceStep | RaceEnded]:
    """Race from one length to another; the session and its cache don't change.

    Args:
        loaded: The session's model.
        session: A session with a prompt.
        first: Number of tokens before the first step, at least 1. If the path is shorter, the cached lane continues to
            this length without measuring.
        last: Number of tokens after the last step, more than `first` and within the context window.
        stopped: Polled before each step.

    Yields:
        A record of the start, one for each step, and one of the end.

    Raises:
        StepError: There is no prompt, or the lengths are out of range.
        Cancelled: `stopped` returned True.
    """
    _check(session, first, last)
    path = session.tree.tokens(session.node)
    cached = session.runner.fresh()
    plain = replace(loaded.settings, kv_bits=None, max_kv_size=None, prefill_step_size=None)
    uncached = Runner(loaded.model, plain, make_kv=loaded.make_kv)
    tree, pending = TokenTree(), dict[int, bytes]()
    reader = NodeReader(session.tokens, tree, pending)

    def pick(node: int, row: Row) -> int:
        return reader.sample(node, row, session.settings).sampled.picked

    yield RaceOpened(session.node, first, last, len(path), HOW)
    yield Measuring("Race", 0, first, "warm-up")
    _warm_up(cached.fresh(), uncached, path[:WARM_UP_TOKENS], stopped)
    ids = path[:first]
    row = cached.forward_path(ids, cut_chunks(session.tree.chunks(session.node), len(ids) - 1), stopped)
    node = tree.add_prompt(ROOT, ids)[-1]
    picked = pick(node, row)
    while (depth := tree[node].depth) < first:
        if stopped():
            raise Cancelled
        yield Measuring("Race", depth, first, "to the first length")
        token = path[depth] if depth < len(path) else picked
        row = cached.forward(token)
        node = reader.add_token(node, token, "sampled")
        picked = pick(node, row)

    cached_total = uncached_total = largest = 0.0
    differences: list[int] = []
    for length in range(first + 1, last + 1):
        if stopped():
            raise Cancelled
        token = path[length - 1] if length <= len(path) else picked
        ids = [*tree.tokens(node), token]
        if length % 2:
            row, cached_ms = _timed(cached.forward, token)
            other, uncached_ms = _timed(uncached.forward_uncached, ids, stopped)
        else:
            other, uncached_ms = _timed(uncached.forward_uncached, ids, stopped)
            row, cached_ms = _timed(cached.forward, token)
        text = session.tokens.text(token, pending.get(node, b""))[0]
        node = reader.add_token(node, token, "sampled")
        picked, other_picked = pick(node, row), pick(node, other)
        difference = float(absolute_difference(row, other).max())
        cached_total, uncached_total = cached_total + cached_ms, uncached_total + uncached_ms
        largest = max(largest, difference)
        if other_picked != picked:
            differences.append(length)
        yield RaceStep(
            tokens=length,
            id=token,
            text=text,
            cached_ms=cached_ms,
            uncached_ms=uncached_ms,
            cached_total_ms=cached_total,
            uncached_total_ms=uncached_total,
            cached_pick=picked,
            uncached_pick=other_picked,
            largest_difference=difference,
            kv_bytes=cached.kv.reading().used_bytes,
            passed_bytes=uncached.kv.last_pass[1],
        )
    yield RaceEnded(last - first, cached_total, uncached_total, tuple(differences), largest)


def _check(session: Session, first: int, last: int) -> None:
    session.position  # noqa: B018 - raises if there is no prompt
    if not 1 <= first < last:
        raise StepError(
            f"A race can't go from {first} to {last} tokens.",
            "Begin at 1 or later, and end beyond the beginning.",
        )
    window = session.facts.context_window
    if window is not None and last > window:
        raise StepError(
            f"A race to {last} tokens exceeds the model's context window of {window}.",
            f"Race to {window} tokens or fewer.",
        )


def _warm_up(cached: Runner, uncached: Runner, ids: Sequence[int], stopped: Stopped) -> None:
    cached.forward_path(ids, prompt_chunks(len(ids)), stopped)
    for _ in range(WARM_UP_ROUNDS):
        if stopped():
            raise Cancelled
        cached.forward(ids[-1])
        uncached.forward_uncached(ids, stopped)


def _timed(forward: Callable[..., Row], *given: Any) -> tuple[Row, float]:
    begun = time.perf_counter()
    row = forward(*given)
    return row, (time.perf_counter() - begun) * 1000
