"""Beam search from the session's current node, in the session's own token tree.

The algorithm is that of transformers 5 (`GenerationMixin._beam_search`), with the length penalty of its GNMT-like
score. A hypothesis is the tokens after the node where the search began. Its logprob is the sum of its tokens' logprobs,
which are the float32 log-softmax of the model's own logits, without a sampler. With W the width and E the number of
end-of-sequence ids, step t (t = 1, 2, ...) is:

1. Every live beam (at t = 1 the empty one) is extended by every token. End-of-sequence ids are barred while the
   completion has fewer than `min_tokens` tokens, and so are tokens that a grammar forbids; nothing is renormalized.
2. The `max(2, 1 + E) * W` extensions with the highest logprobs are candidates; of equal ones the better beam's, then
   the lower id's, come first.
3. A candidate ends with an end-of-sequence id, or with any token if t is `max_tokens`. Those that end and are among the
   first W candidates become hypotheses, with score = logprob / t ** length_penalty; others that end are dropped. The W
   hypotheses with the highest scores so far are kept.
4. The first W candidates that don't end are the live beams.
5. The search is over at t = `max_tokens`, or once there are W hypotheses and, without early stopping, no live beam has
   logprob / t ** length_penalty above the worst of them. (With a penalty above 0 a longer one could still get above it:
   this is transformers' heuristic for `early_stopping=False`.)

Greedy decoding (the most probable token that is not barred) runs along, in an extra row if it is not a live beam, and
continues alone if the search is over first.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Literal

import numpy as np

from engine.decoding.rows import Rows, enough_memory, rows_of
from engine.errors import Cancelled, StepError
from engine.protocol import Beam, BeamEnded, BeamOpened, BeamStep, GoOnBeams, Hypothesis, Record, SearchBeams
from engine.sampling.ranking import Row, checked_logprobs, ranked
from engine.session import node_records
from engine.session.context import Context
from engine.session.session import Session, run_at
from engine.setting import check
from engine.settings import BeamSettings
from engine.task import Task


def search(
    session: Session, settings: BeamSettings, rows: Rows | None = None
) -> Iterator[BeamOpened | BeamStep | BeamEnded]:
    """Search step by step; the session and its live cache don't change, except for new nodes in its tree.

    The caller may pause the search at any record, and continue it while the tree is the same.

    Args:
        session: A session that has read a prompt.
        settings: Settings of the search; `min_tokens` is the session's.
        rows: Rows in which the beams run; None for rows of the session's model.

    Yields:
        A record of the start, one for each step, and the ranking.

    Raises:
        SettingsError: A setting is out of its range.
        StepError: There is no prompt, the context is full, there is not enough memory, or the model's logits are not
            numbers.
    """
    check(settings)
    if session.settings.grammar is not None and not session.tokens.eos_ids:
        raise StepError(
            "This model has no end-of-sequence token, with which beams under a grammar end.",
            "Name one with --extra-eos-token, or remove the grammar.",
        )
    session.prepare_step()
    _ = session.position
    yield from BeamRun(session, settings, rows or rows_of(run_at(session, session.node).runner)).run()


class BeamRun:
    """One beam search; see the module for the algorithm.

    Args:
        session: Session; the search begins at its current node.
        settings: Settings of the search, checked.
        rows: Rows in which the beams run.
    """

    def __init__(self, session: Session, settings: BeamSettings, rows: Rows) -> None:
        self._session = session
        self._settings = settings
        self._rows = rows
        self._tree, self._start = session.tree, session.node
        at = self._tree[self._start]
        self._barred_until = session.settings.min_tokens - (at.depth - at.start)
        window = session.facts.context_window
        self._limit = settings.max_tokens
        if window is not None and at.depth < window:  # unless it is exceeded already
            self._limit = min(self._limit, window - at.depth)
        self._step = 0
        self._steps = 0
        """Steps of the search once it is over; 0 before."""
        self._left: tuple[Beam, ...] = ()
        self._live = [Beam(self._start, at.parent, 0, 0, at.token, "", 0.0, 0.0, 0.0, 0)]
        self._greedy = self._live[0]
        self._greedy_ended: Hypothesis | None = None
        self._finished: list[Hypothesis] = []
        self._places = {self._start: 0}
        self._logprobs = {self._start: self._barred(self._start, checked_logprobs(session.logits))}
        self._greedy_next = int(self._barred(self._start, session.logits.copy()).argmax())
        """The next token of greedy decoding, by the logits, since rounded logprobs may tie."""

    def run(self) -> Iterator[BeamOpened | BeamStep | BeamEnded]:
        """Search until both the search and greedy decoding have ended."""
        asked = self._settings
        yield BeamOpened(
            self._start, asked.width, asked.length_penalty, asked.early_stopping, self._limit, self._rows.note
        )
        total, over = 0.0, False
        while not over:
            begun = time.perf_counter()
            self._step += 1
            live, pruned = ((), ()) if self._steps else self._search()
            greedy = self._grow_greedy()
            count = self._forward()
            total += (ms := (time.perf_counter() - begun) * 1000)
            over = self._steps > 0 and self._greedy_ended is not None
            finished = tuple(self._finished)
            yield BeamStep(self._step, live, pruned, finished, greedy, count, ms, over)
        assert self._greedy_ended is not None
        reason: Literal["finished", "length"] = "length" if self._steps == self._limit else "finished"
        yield BeamEnded(tuple(self._finished), self._greedy_ended, self._left, self._steps, reason, total)

    def _search(self) -> tuple[tuple[Beam, ...], tuple[Beam, ...]]:
        """Steps 1 to 5; returns the live beams and the pruned ones."""
        before, width, eos = self._live, self._settings.width, self._session.tokens.eos_ids
        count, extensions = max(2, 1 + len(eos)) * width, list[tuple[float, int, int, float]]()
        for place, beam in enumerate(before):
            row = self._logprobs[beam.node]
            for token in ranked(row, min(count, row.size)).tolist():
                if (logprob := float(row[token])) > -math.inf:
                    extensions.append((-(beam.total_logprob + logprob), place, token, logprob))
        best = [(before[place], token, logprob) for _, place, token, logprob in sorted(extensions)[:count]]
        last = self._step == self._limit
        ending = [by for by in best[:width] if last or by[1] in eos]
        going = [] if last else [by for by in best if by[1] not in eos][:width]
        live = tuple(self._grow(*by, place) for place, by in enumerate(going))
        hypotheses = [self._hypothesis(self._grow(*by)) for by in ending]
        # stable: of equal scores, the earlier comes first
        ranking = sorted([*self._finished, *hypotheses], key=lambda each: -each.score)
        self._finished = ranking[:width]
        enough = len(self._finished) == width and bool(live)
        if enough and not self._settings.early_stopping:
            enough = live[0].score <= self._finished[-1].score
        self._live = list(live)
        if last or not live or enough:
            self._steps, self._left, self._live = self._step, live, []
        grown = [*(beam.node for beam in live), *(by.node for by in self._finished)]
        into = {self._tree[node].parent for node in grown}
        return live, tuple(beam for beam in before if beam.length and beam.node not in into)

    def _grow_greedy(self) -> Beam | None:
        """Extend greedy decoding by the most probable token; None if it ended before."""
        if self._greedy_ended is not None:
            return None
        token = self._greedy_next
        logprob = float(self._logprobs[self._greedy.node][token])
        self._greedy = grown = self._grow(self._greedy, token, logprob)
        if token in self._session.tokens.eos_ids or grown.length == self._limit:
            self._greedy_ended = self._hypothesis(grown)
        return next((beam for beam in self._live if beam.node == grown.node), grown)

    def _grow(self, beam: Beam, token: int, logprob: float, place: int = -1) -> Beam:
        """The beam extended by a token, with its node in the tree."""
        session, length, total = self._session, beam.length + 1, beam.total_logprob + logprob
        node = session.node_reader.add_token(beam.node, token, "beam")
        text = session.tokens.text(token, session.pending.get(beam.node, b""))[0]
        score = float(total / length**self._settings.length_penalty)
        return Beam(node, beam.node, place, beam.place, token, text, logprob, total, score, length)

    def _hypothesis(self, beam: Beam) -> Hypothesis:
        tokens = self._session.tokens
        ids = self._tree.tail(beam.node, beam.length)
        ends = beam.id in tokens.eos_ids
        raw = b"".join(map(tokens.raw, ids[:-1] if ends else ids))
        text = (self._session.pending.get(self._start, b"") + raw).decode("utf-8", "replace")
        return Hypothesis(
            beam.node, tuple(ids), text, beam.total_logprob, beam.score, beam.length,
            "eos" if ends else "length", node_records.eos_name(self._session, beam.id) if ends else "",
        )  # fmt: skip

    def _forward(self) -> int:
        """Run the last token of all continuing sequences; returns their number."""
        nodes = [beam.node for beam in self._live]
        if self._greedy_ended is None and self._greedy.node not in nodes:
            nodes.append(self._greedy.node)
        if nodes:
            self._rows.keep([self._places[self._tree[node].parent] for node in nodes])
            with enough_memory(
                f"There is not enough memory for {len(nodes)} beams at once.", "Take a smaller width."
            ):
                rows = self._rows.forward([self._tree[node].token for node in nodes])
            self._places = {node: place for place, node in enumerate(nodes)}
            self._logprobs = {
                node: self._barred(node, checked_logprobs(row)) for node, row in zip(nodes, rows, strict=True)
            }
            if self._greedy_ended is None:
                node = self._greedy.node
                self._greedy_next = int(self._barred(node, rows[self._places[node]].copy()).argmax())
        return len(nodes)

    def _barred(self, node: int, row: Row) -> Row:
        """Bar end-of-sequence ids while `min_tokens` requires it, and the tokens that the grammar forbids after a node;
        changes the row in place."""
        grammar = self._session.node_reader.grammars.at(self._session.settings.grammar, node)
        if self._step < self._barred_until and (grammar is None or not grammar.complete):
            row[list(self._session.tokens.eos_ids)] = -np.inf
        if grammar is not None and grammar.allowed is not None:
            row[~grammar.allowed] = -np.inf
        return row


# ---- the commands ------------------------------------------------------------------------------


def search_beams(context: Context, command: SearchBeams, task: Task) -> Iterator[Record]:
    context.of_tree[SearchBeams] = search(context.session, command.settings)
    yield from _advance(context, command.steps, task)


def go_on_beams(context: Context, command: GoOnBeams, task: Task) -> Iterator[Record]:
    yield from _advance(context, command.steps, task)


def _advance(context: Context, steps: int | None, task: Task) -> Iterator[Record]:
    """Continue the paused beam search; a failure ends it. Its caches stay until the next prompt, model or search."""
    beams: Iterator[Record] | None = context.of_tree.pop(SearchBeams, None)
    if beams is None:
        raise StepError("There is no beam search to continue.", "Start one.")
    for record in beams:
        yield record
        if not isinstance(record, BeamStep):
            continue
        steps = None if steps is None else steps - 1
        if not record.last and (steps == 0 or task.cancel.is_set()):
            context.of_tree[SearchBeams] = beams
            if steps != 0:
                raise Cancelled
            return
