"""A whole text in both models, outside of any session: window by window, in caches of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

import mlx.core as mx

from engine.errors import PromptError
from engine.lockstep.alignment import Span, Window, by_bytes, byte_ends, one_by_one, windows
from engine.lockstep.rows import ChunkedRows
from engine.lockstep.second import Second
from engine.lockstep.spans import Side, SpanReader
from engine.model.forward import Runner, Stopped
from engine.model.load import Loaded
from engine.protocol import DiffText, LockstepEnded, LockstepRead, LockstepSpan

BATCH = 32
"""Spans of a record."""
LEAST_WINDOW = 16


def diff_text(
    first: Loaded, second: Second, command: DiffText, stopped: Stopped
) -> Iterator[LockstepRead | LockstepEnded]:
    """Read a text in both models.

    Args:
        first: P.
        second: Q.
        command: The text.
        stopped: Polled before each chunk.

    Raises:
        PromptError: The text has no token to score, or a tokenizer doesn't give it back.
        Cancelled: `stopped` returned True; the records so far stand.
    """
    run = TextRun(first, second, command, stopped)
    for window in run.windows:
        yield from run.read(window)
    yield run.ended()


class TextRun:
    """One text; see `diff_text`."""

    def __init__(self, first: Loaded, second: Second, command: DiffText, stopped: Stopped) -> None:
        self._first, self._second, self._command, self._stopped = first, second, command, stopped
        other = second.loaded
        self._ids = first.tokens.encode(command.text)
        self._other_ids = self._ids if second.aligned == "ids" else other.tokens.encode(command.text)
        other.tokens.check(self._other_ids)
        self._spans = self._cut()
        if not self._spans:
            raise PromptError("The two tokenizers have no common border in this text.", "Give a longer text.")
        # the mark that begins a text begins every window; spans by ids count it as a token, those by bytes don't
        self._marks = self._leading(first, self._ids)
        self._other_marks = self._leading(other, self._other_ids)
        sizes = self._size(first) - len(self._marks), self._size(other) - len(self._other_marks)
        self.windows = list(windows(self._spans, *sizes))
        self._kv = self._other_kv = 0

    def _cut(self) -> list[Span]:
        if self._second.aligned == "ids":
            return one_by_one(len(self._ids))
        text, ends = self._command.text.encode(), []
        for loaded, ids in ((self._first, self._ids), (self._second.loaded, self._other_ids)):
            found = byte_ends([loaded.tokens.raw(token) for token in ids], text)
            if found is None:
                raise PromptError(
                    f"The tokenizer of {loaded.facts.name} changes this text, so its tokens have no place in it.",
                    "Compare models whose tokenizers keep texts as they are, or another text.",
                )
            ends.append(found)
        return by_bytes(*ends)

    def _leading(self, loaded: Loaded, ids: Sequence[int]) -> list[int]:
        """The marks that the tokenizer put before the text."""
        own = next((place for place, token in enumerate(ids) if not loaded.tokens.is_special(token)), 0)
        return list(ids[:own])

    def _size(self, loaded: Loaded) -> int:
        wanted, window = self._command.window, loaded.facts.context_window
        if wanted is not None and wanted < LEAST_WINDOW:
            raise PromptError(f"A window of {wanted} tokens is too short.", f"Give at least {LEAST_WINDOW}.")
        return min(wanted or 10**9, window or 10**9)

    # ---- windows ----------------------------------------------------------------------------

    def read(self, window: Window) -> Iterator[LockstepRead]:
        """The spans of one window that were not in the one before.

        Raises:
            Cancelled: As `diff_text`.
        """
        spans = self._spans[window.first : window.end]
        again = window.first > 0
        marks, other_marks = (self._marks, self._other_marks) if again else ([], [])
        # the first window has the marks among its own tokens, whether a span has them or not
        begin, other_begin = (spans[0].first, spans[0].other_first) if again else (0, 0)
        ids = [*marks, *self._ids[begin : spans[-1].end]]
        other_ids = [*other_marks, *self._other_ids[other_begin : spans[-1].other_end]]
        runner, other_runner = _runner(self._first), _runner(self._second.loaded)
        compared, by_ids = self._second.compared(self._first), self._second.aligned == "ids"
        rows = ChunkedRows(runner, self._first.tokens.vocabulary, ids, self._stopped)
        other_rows = ChunkedRows(
            other_runner, self._second.loaded.tokens.vocabulary, other_ids, self._stopped,
            rows if by_ids else None,
        )  # fmt: skip
        reader = SpanReader(
            Side(self._first.tokens, ids, rows, compared),
            Side(self._second.loaded.tokens, other_ids, other_rows, compared),
            by_ids,
            self._command.candidates,
        )
        shift, other_shift = begin - len(marks), other_begin - len(other_marks)
        taken: list[LockstepSpan] = []
        spent, other_spent = 0.0, 0.0
        for number, span in zip(count(window.scored), self._spans[window.scored : window.end]):
            moved = Span(
                span.first - shift,
                span.end - shift,
                span.other_first - other_shift,
                span.other_end - other_shift,
            )
            taken.append(reader.read(moved, span.first))
            if len(taken) == BATCH or number + 1 == window.end:
                yield LockstepRead(
                    -1, taken[0].position, tuple(taken), span.end, len(self._ids),
                    rows.ms - spent, other_rows.ms - other_spent,
                )  # fmt: skip
                taken, spent, other_spent = [], rows.ms, other_rows.ms
        self._kv = max(self._kv, runner.kv.reading().used_bytes)
        self._other_kv = max(self._other_kv, other_runner.kv.reading().used_bytes)

    def ended(self) -> LockstepEnded:
        """What it took."""
        several = len(self.windows) > 1
        size = max(self._spans[each.end - 1].end - self._spans[each.first].first for each in self.windows)
        context = min(
            (self._spans[each.scored].first - self._spans[each.first].first for each in self.windows[1:]),
            default=0,
        )
        return LockstepEnded(size if several else 0, context, self._kv, self._other_kv, mx.get_peak_memory())


def _runner(loaded: Loaded) -> Runner:
    return Runner(loaded.model, loaded.settings, loaded.first_uses)
