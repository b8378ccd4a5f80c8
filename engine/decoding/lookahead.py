"""Look-ahead: what greedy decoding would bring after each of some candidates, in one batched run.

After each candidate come the tokens that have the largest of the model's own logits, of equals the lowest id: no
sampler, no penalty, and end-of-sequence is never barred. The path that they share is not run again: its cache is copied
for each candidate (`engine.model.batch`). Nothing is added to the tree, and the session stays as it is.

A row of a batch may be rounded otherwise than a row alone. Where the two largest logits are nearer to each other than
that, the token can be another than the one that stepping there takes: as far as the model's dtype tells, both are the
most probable one. On the CPU backend no row was seen to differ.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import numpy as np

from engine.errors import Cancelled, StepError
from engine.model.batch import Rows, rows
from engine.model.forward import Stopped, never
from engine.model.tokens import Tokens
from engine.records import AheadLine, LookedAhead
from engine.sampling.ranking import Row, log_softmax
from engine.session.detached import DetachedPath, run_at
from engine.session.session import Session


def look_ahead(
    session: Session, node: int, ids: Sequence[int], tokens: int = 8, stopped: Stopped = never
) -> Iterator[LookedAhead]:
    """Follow greedy decoding after some candidates; the session stays as it is.

    Args:
        session: Has read a prompt.
        node: The candidates stand after it.
        ids: The candidates.
        tokens: How many to bring after each, at least 1; fewer where the context window ends before.
        stopped: Asked before each forward.

    Yields:
        How far it has come, after each token.

    Raises:
        StepError: There is no such node, no candidate, no room in the context, too little memory, or the model's
            logits are not numbers.
        PromptError: The model has no embedding for one of the candidates.
        Cancelled: `stopped` said so.
    """
    begun = time.perf_counter()
    if not ids or tokens < 1:
        raise StepError("There is nothing to look ahead to.", "Ask for a candidate, and for a token or more.")
    session.tokens.check(list(ids))
    look = _begin(session, node, ids, tokens, stopped)
    while not look.over:
        if stopped():
            raise Cancelled
        look.step()
        yield look.record(begun)
    if not look.steps:  # every candidate is an end-of-sequence token, or the window ends with it
        yield look.record(begun)


def _begin(session: Session, node: int, ids: Sequence[int], tokens: int, stopped: Stopped) -> LookAheadRun:
    there = run_at(session, node, stopped)
    count, ends = _within_window(session, node, tokens)
    forwards = rows(there.runner)
    notes = (_again(there), forwards.note, ends)
    logprobs, pending = _read(there.row), session.pending.get(node, b"")
    lines = [GreedyLine(session.tokens, each, float(logprobs[each]), pending) for each in ids]
    return LookAheadRun(node, lines, forwards, count, " ".join(filter(None, notes)))


class LookAheadRun:
    """One look ahead on its way.

    Args:
        node: Where it begins.
        lines: The candidates.
        forwards: Runs them.
        tokens: To bring after each.
        note: For the records.
    """

    def __init__(self, node: int, lines: list[GreedyLine], forwards: Rows, tokens: int, note: str) -> None:
        self._node, self._lines, self._forwards = node, lines, forwards
        self._tokens, self._note = tokens, note
        self.steps = 0
        """Tokens that were brought so far, where a line hasn't ended before."""

    @property
    def over(self) -> bool:
        """Whether every line has all of its tokens."""
        return self.steps == self._tokens or all(line.ended for line in self._lines)

    def step(self) -> None:
        """Let every line that goes on grow by a token; those that ended leave the batch."""
        live = [line for line in self._lines if not line.ended]
        for place, (line, row) in enumerate(zip(live, self._forward(live), strict=True)):
            line.place = place
            line.grow(row)
        self.steps += 1

    def record(self, begun: float) -> LookedAhead:
        """How far it has come."""
        lines = tuple(line.record() for line in self._lines)
        ms = (time.perf_counter() - begun) * 1000
        return LookedAhead(self._node, lines, self._tokens, self.over, ms, self._note)

    def _forward(self, live: list[GreedyLine]) -> Sequence[Row]:
        try:
            return self._forwards.forward([line.place for line in live], [line.latest for line in live])
        except (MemoryError, RuntimeError) as error:
            if isinstance(error, MemoryError) or "alloc" in str(error).lower():  # as every backend words it
                raise StepError(
                    f"There is not enough memory to look ahead from {len(live)} candidates at once.",
                    "Ask for fewer of them, or shorten the prompt.",
                ) from error
            raise


class GreedyLine:
    """A candidate and what came after it so far.

    Args:
        tokens: Their bytes.
        id: The candidate.
        logprob: Its own.
        pending: Bytes of an unfinished character before it.
    """

    def __init__(self, tokens: Tokens, id: int, logprob: float, pending: bytes) -> None:
        self._tokens, self._id, self._logprob = tokens, id, logprob
        self._ids: list[int] = []
        self._text = ""
        self._pending = tokens.text(id, pending)[1]
        self.place = 0
        """Of its row in the last forward."""

    @property
    def latest(self) -> int:
        """The token that goes through the model next."""
        return self._ids[-1] if self._ids else self._id

    @property
    def ended(self) -> bool:
        """Whether it came to an end-of-sequence token."""
        return self.latest in self._tokens.eos_ids

    def grow(self, row: Row) -> None:
        """Take the most probable token after a row of logits."""
        token = int(row.argmax())
        self._logprob += float(_read(row)[token])
        self._ids.append(token)
        if not self.ended:
            text, self._pending = self._tokens.text(token, self._pending)
            self._text += text

    def record(self) -> AheadLine:
        """As a record."""
        return AheadLine(self._id, tuple(self._ids), self._text, self._logprob, self.ended)


def _read(row: Row) -> Row:
    """The logprobs of a row of logits."""
    if np.isnan(row).any():
        raise StepError("The model's logits are not numbers here.", "Its weights or precision don't hold.")
    return log_softmax(row)


def _again(there: DetachedPath) -> str:
    """That a part of the path was computed again, if so."""
    if not there.recomputed:
        return ""
    tokens = "1 token" if there.recomputed == 1 else f"{there.recomputed:,} tokens"
    return f"{tokens} of the path went through the model again{f' ({there.why})' if there.why else ''}."


def _within_window(session: Session, node: int, tokens: int) -> tuple[int, str]:
    """How many tokens there can be after a candidate, and why they are fewer than asked for, if so.

    The context window ends them, unless the text is beyond it already where the model can be.
    """
    window, held = session.facts.context_window, session.tree[node].depth
    if window is None or (held >= window and not session.facts.hard_window):
        return tokens, ""
    if held >= window:
        raise StepError(
            f"The context window of {window} tokens is full, and this model has no positions beyond it.",
            "Go back, or begin with a new prompt.",
        )
    left = window - held - 1
    ends = f"The context window of {window:,} tokens ends {left} of them after the candidate."
    return (tokens, "") if left >= tokens else (left, ends)
