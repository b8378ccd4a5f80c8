"""Look-ahead: what greedy decoding would generate after each of some candidates, in one batched run.

After each candidate follow the tokens with the largest of the model's own logits (the lowest id of equal ones): no
sampler, no penalty, and end-of-sequence is never barred. A grammar applies, and a line ends where the grammar's text
must end. The shared path is not run again: its cache is copied for each candidate. Nothing is added to the tree, and
the session doesn't change.

A row of a batch may be rounded differently from a row alone. If the two largest logits are nearer to each other than
that, the token can differ from the one that stepping takes: within the precision of the model's dtype, both are the
most probable one. On the CPU backend no row was seen to differ.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import numpy as np

from engine.decoding.rows import enough_memory, rows_of
from engine.errors import Cancelled, StepError
from engine.grammar.states import GrammarState
from engine.model.tokens import Tokens
from engine.protocol import AheadLine, LookAhead, LookedAhead, Record
from engine.sampling.ranking import Row, checked_logprobs
from engine.session.context import Context
from engine.session.session import DetachedPath, Session, run_at
from engine.settings import BY_NAME, STAGES
from engine.task import Stopped, Task, never


def look_ahead(context: Context, command: LookAhead, task: Task) -> Iterator[Record]:
    """Continue each of some candidates greedily."""
    yield from lines_ahead(context.session, command.node, command.ids, command.tokens, task.cancel.is_set)


def lines_ahead(
    session: Session, node: int, ids: Sequence[int], tokens: int = 8, stopped: Stopped = never
) -> Iterator[LookedAhead]:
    """Follow greedy decoding after some candidates; the session doesn't change.

    Args:
        session: A session that has read a prompt.
        node: The node before the candidates.
        ids: The candidates.
        tokens: Number of tokens to generate after each, at least 1; fewer if the context window ends before.
        stopped: Polled before each forward pass.

    Yields:
        All lines so far, after each token.

    Raises:
        StepError: There is no such node, no candidate, no room in the context, too little memory, or the model's
            logits are not numbers.
        PromptError: The model has no embedding for one of the candidates.
        Cancelled: `stopped` returned True.
    """
    begun = time.perf_counter()
    if not ids or tokens < 1:
        raise StepError("Look-ahead needs at least one candidate and one token.", "Ask for more.")
    session.tokens.check(list(ids))
    detached = run_at(session, node, stopped)
    limit, ends = _within_window(session, node, tokens)
    rows = rows_of(detached.runner)
    notes = (_recomputed_note(detached), session.cut_note(node), _own_logits_note(session), rows.note, ends)
    note = " ".join(filter(None, notes))
    logprobs, pending = checked_logprobs(detached.row), session.pending.get(node, b"")
    state = session.node_reader.grammars.at(session.settings.grammar, node)
    lines = [GreedyLine(session.tokens, token, float(logprobs[token]), pending, state) for token in ids]

    def record(last: bool) -> LookedAhead:
        told = tuple(line.record() for line in lines)
        return LookedAhead(node, told, limit, last, (time.perf_counter() - begun) * 1000, note)

    live, done = [line for line in lines if not line.ended], 0
    places = [0] * len(live)
    while live and done < limit:
        if stopped():
            raise Cancelled
        rows.keep(places)
        with enough_memory(
            f"There is not enough memory to look ahead from {len(live)} candidates at once.",
            "Ask for fewer of them, or shorten the prompt.",
        ):
            found = rows.forward([line.latest for line in live])
        for line, row in zip(live, found, strict=True):
            line.grow(row)
        places = [place for place, line in enumerate(live) if not line.ended]
        live, done = [live[place] for place in places], done + 1
        yield record(done == limit or not live)
    if not done:  # every candidate is an end-of-sequence token, or the window ends with it
        yield record(True)


class GreedyLine:
    """A candidate and the tokens generated after it so far.

    Args:
        tokens: The model's tokenizer.
        id: The candidate.
        logprob: Logprob of the candidate.
        pending: Bytes of an unfinished character before it.
        state: The grammar's state before the candidate; None without a grammar, and before it begins.
    """

    def __init__(
        self, tokens: Tokens, id: int, logprob: float, pending: bytes, state: GrammarState | None = None
    ) -> None:
        self._tokens, self._id, self._logprob = tokens, id, logprob
        self._ids: list[int] = []
        self._text = ""
        self._pending = tokens.text(id, pending)[1]
        self._state = None if state is None else state.after(id)

    @property
    def latest(self) -> int:
        """The token that the model runs next."""
        return self._ids[-1] if self._ids else self._id

    @property
    def ended(self) -> bool:
        """True if it reached an end-of-sequence token, or the grammar's text must end here."""
        complete = self._state is not None and self._state.complete
        return complete or self.latest in self._tokens.eos_ids

    def grow(self, row: Row) -> None:
        """Take the most probable token after a row of logits."""
        allowed = self._state.allowed if self._state is not None else None
        token = int((row if allowed is None else np.where(allowed, row, -np.inf)).argmax())
        if self._state is not None:
            self._state = self._state.after(token)
        self._logprob += float(checked_logprobs(row)[token])
        self._ids.append(token)
        if token not in self._tokens.eos_ids:
            text, self._pending = self._tokens.text(token, self._pending)
            self._text += text

    def record(self) -> AheadLine:
        return AheadLine(self._id, tuple(self._ids), self._text, self._logprob, self.ended)


def _recomputed_note(detached: DetachedPath) -> str:
    """The note that a part of the path was recomputed; empty if none was."""
    if not detached.recomputed:
        return ""
    tokens = "1 token" if detached.recomputed == 1 else f"{detached.recomputed:,} tokens"
    return f"{tokens} of the path went through the model again{f' ({detached.why})' if detached.why else ''}."


def _own_logits_note(session: Session) -> str:
    """The note that settings which change the sampler's logits are ignored; empty if there are none."""
    settings = (BY_NAME[stage.setting] for stage in STAGES.values() if stage.kind == "logits")
    left_out = [setting.label for setting in settings if setting.on(session.settings)]
    return f"Greedy by the model's own logits, without {', '.join(left_out)}." if left_out else ""


def _within_window(session: Session, node: int, tokens: int) -> tuple[int, str]:
    """The limit of tokens after a candidate, and why it is less than `tokens`, if so.

    The context window sets it, unless the text is longer than the window already.
    """
    session.check_room(node)
    window, held = session.facts.context_window, session.tree[node].depth
    if window is None or held >= window:
        return tokens, ""
    left = window - held - 1
    ends = f"The context window of {window:,} tokens ends {left} of them after the candidate."
    return (tokens, "") if left >= tokens else (left, ends)
