"""The race: the same tokens with a KV cache and without one, step by step in turn, both measured.

Both lanes have their own caches, separate from the session's. They follow the session's path as far as it reaches; then
the lane with the cache decides, with the session's settings and draws, and the other's choice is compared with it.
End-of-sequence is a token like others here: a race continues to its length.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from msgspec import Struct
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
        session: Has read a prompt.
        first: Tokens of the sequence before the first step, at least 1. Where the path is shorter the lane with the
            cache continues to there unmeasured.
        last: Tokens after the last step, more than `first` and within the context window.
        stopped: Polled before each step.

    Yields:
        A record of the begin, one for each step, and one of the end.

    Raises:
        StepError: There is no prompt, or the lengths are out of range.
        Cancelled: `stopped` returned True.
    """
    _check(session, first, last)
    run = RaceRun(loaded, session, first, last, stopped)
    yield run.opened()
    yield from run.advance_to_first()
    while run.tokens < last:
        yield run.step()
    yield run.ended()


def _check(session: Session, first: int, last: int) -> None:
    session.position  # noqa: B018 - raises where there is no prompt
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


class _Sums(Struct):
    """Sums over the steps so far."""

    steps: int = 0
    cached_ms: float = 0.0
    uncached_ms: float = 0.0
    largest: float = 0.0


class RaceRun:
    """One race; see `race`."""

    def __init__(self, loaded: Loaded, session: Session, first: int, last: int, stopped: Stopped) -> None:
        self._session = session
        self._first, self._last = first, last
        self._stopped = stopped
        self._path = session.tree.tokens(session.node)
        self._cached = session.runner.fresh()
        plain = replace(loaded.settings, kv_bits=None, max_kv_size=None, prefill_step_size=None)
        self._uncached = Runner(loaded.model, plain, make_kv=loaded.make_kv)
        self._tree = TokenTree()
        self._pending: dict[int, bytes] = {}
        self._node_reader = NodeReader(session.tokens, self._tree, self._pending)
        self._sums = _Sums()
        self._differences: list[int] = []
        self._next = -1
        """What the lane with the cache takes next."""
        self.tokens = 0
        """Of the sequence so far."""

    def opened(self) -> RaceOpened:
        """The record of its begin."""
        return RaceOpened(self._session.node, self._first, self._last, len(self._path), HOW)

    def ended(self) -> RaceEnded:
        """The record of its end."""
        sums = self._sums
        return RaceEnded(sums.steps, sums.cached_ms, sums.uncached_ms, tuple(self._differences), sums.largest)

    # ---- to the start -----------------------------------------------------------------------

    def advance_to_first(self) -> Iterator[Measuring]:
        """Warm up, run the path, and continue to the first length."""
        yield Measuring("Race", 0, self._first, "warm-up")
        self._warm_up()
        ids = self._path[: self._first]
        chunks = cut_chunks(self._session.tree.chunks(self._session.node), len(ids) - 1)
        row = self._cached.forward_path(ids, chunks, self._stopped)
        self._node = self._tree.add_prompt(ROOT, ids)[-1]
        self._next = self._pick(row)
        while (self._tree[self._node].depth) < self._first:
            self._check()
            yield Measuring("Race", self._tree[self._node].depth, self._first, "to the first length")
            token = self._token()
            row = self._cached.forward(token)
            self._grow(token)
            self._next = self._pick(row)
        self.tokens = self._first

    def _warm_up(self) -> None:
        ids = self._path[:WARM_UP_TOKENS]
        runner = self._cached.fresh()
        runner.forward_path(ids, prompt_chunks(len(ids)), self._stopped)
        for _ in range(WARM_UP_ROUNDS):
            self._check()
            runner.forward(ids[-1])
            self._uncached.forward_uncached(ids, self._stopped)

    # ---- a step -----------------------------------------------------------------------------

    def step(self) -> RaceStep:
        """Run the next token in both lanes."""
        self._check()
        token = self._token()
        ids = [*self._tree.tokens(self._node), token]
        lanes: list[Callable[[], Row]] = [
            lambda: self._cached.forward(token), lambda: self._uncached.forward_uncached(ids, self._stopped),
        ]  # fmt: skip
        order = (0, 1) if len(ids) % 2 else (1, 0)
        taken = {lane: _timed(lanes[lane]) for lane in order}
        text = self._grow(token)
        self.tokens += 1
        return self._record(token, text, *taken[0], *taken[1])

    def _record(
        self, token: int, text: str, row: Row, cached_ms: float, other: Row, uncached_ms: float
    ) -> RaceStep:
        sums, difference = self._sums, float(absolute_difference(row, other).max())
        sums.steps += 1
        sums.cached_ms += cached_ms
        sums.uncached_ms += uncached_ms
        sums.largest = max(sums.largest, difference)
        self._next, agreed = self._pick(row), self._pick(other)
        if agreed != self._next:
            self._differences.append(self.tokens)
        return RaceStep(
            tokens=self.tokens, id=token, text=text, cached_ms=cached_ms, uncached_ms=uncached_ms,
            cached_total_ms=sums.cached_ms, uncached_total_ms=sums.uncached_ms, cached_pick=self._next,
            uncached_pick=agreed, largest_difference=difference,
            kv_bytes=self._cached.kv.reading().used_bytes, passed_bytes=self._uncached.kv.last_pass[1],
        )  # fmt: skip

    def _token(self) -> int:
        """The next token: the path's, or beyond its end the one that the lane with the cache picked."""
        depth = self._tree[self._node].depth
        return self._path[depth] if depth < len(self._path) else self._next

    def _pick(self, row: Row) -> int:
        return self._node_reader.sample(self._node, row, self._session.settings).sampled.picked

    def _grow(self, token: int) -> str:
        """Add a token to the race's own tree; returns the characters that it finishes."""
        text = self._session.tokens.text(token, self._pending.get(self._node, b""))[0]
        self._node = self._node_reader.add_token(self._node, token, "sampled")
        return text

    def _check(self) -> None:
        if self._stopped():
            raise Cancelled


def _timed(run: Callable[[], Row]) -> tuple[Row, float]:
    begun = time.perf_counter()
    row = run()
    return row, (time.perf_counter() - begun) * 1000
