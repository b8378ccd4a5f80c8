"""A whole text in both models, window by window, in caches of their own."""

from __future__ import annotations

from collections.abc import Iterator

import mlx.core as mx

from engine.errors import PromptError
from engine.lockstep.paths import BATCH, PathRows
from engine.lockstep.second import Second
from engine.lockstep.spans import (
    Side,
    Span,
    by_bytes,
    byte_ends,
    leading_marks,
    one_by_one,
    read_span,
    window_size,
    windows,
)
from engine.model.load import Loaded
from engine.protocol import DiffText, LockstepEnded, LockstepRead
from engine.task import Stopped


def compare_texts(
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
    other, by_ids, compared = second.loaded, second.aligned == "ids", second.compared(first)
    ids = first.tokens.encode(command.text)
    other_ids = ids if by_ids else other.tokens.encode(command.text)
    other.tokens.check(other_ids)
    spans = one_by_one(len(ids)) if by_ids else _by_bytes((first, other), (ids, other_ids), command.text)
    if not spans:
        raise PromptError("The two tokenizers have no common border in this text.", "Give a longer text.")
    # the mark that begins a text begins every window; spans by ids count it as a token, those by bytes don't
    marks, other_marks = leading_marks(first.tokens, ids), leading_marks(other.tokens, other_ids)
    size, other_size = (window_size(each.facts.context_window, command.window) for each in (first, other))
    cut = list(windows(spans, size - len(marks), other_size - len(other_marks)))

    def opened(
        model: Loaded, shift: int, own: list[int], like: list[int] | None = None
    ) -> tuple[PathRows, Side]:
        """One model's rows over the tokens of a window, the first of which has the place `shift` in the text."""
        rows = PathRows(model.runner(), model.tokens.vocabulary, like=like)
        rows.follow(own, None, stopped)
        return rows, Side(model.tokens, own, rows.after, compared, command.candidates, shift)

    kv = other_kv = 0
    for window in cut:
        begin, end = spans[window.first], spans[window.end - 1]
        # the first window has the marks among its own tokens, whether a span has them or not
        shift = other_shift = 0
        own, other_own = ids[: end.end], other_ids[: end.other_end]
        if window.first:
            shift, other_shift = begin.first - len(marks), begin.other_first - len(other_marks)
            own = [*marks, *own[begin.first :]]
            other_own = [*other_marks, *other_own[begin.other_first :]]
        rows, mine = opened(first, shift, own)
        other_rows, theirs = opened(other, other_shift, other_own, rows.ends if by_ids else None)
        spent = other_spent = 0.0
        for place in range(window.scored, window.end, BATCH):
            batch = spans[place : min(place + BATCH, window.end)]
            read = tuple(read_span(mine, theirs, span, by_ids) for span in batch)
            ms, other_ms = rows.ms - spent, other_rows.ms - other_spent
            yield LockstepRead(-1, batch[0].first, read, batch[-1].end, len(ids), ms, other_ms)
            spent, other_spent = rows.ms, other_rows.ms
        kv = max(kv, rows.runner.kv.reading().used_bytes)
        other_kv = max(other_kv, other_rows.runner.kv.reading().used_bytes)
    widest = max(spans[each.end - 1].end - spans[each.first].first for each in cut) if len(cut) > 1 else 0
    context = min((spans[each.scored].first - spans[each.first].first for each in cut[1:]), default=0)
    yield LockstepEnded(widest, context, kv, other_kv, mx.get_peak_memory())


def _by_bytes(both: tuple[Loaded, Loaded], texts: tuple[list[int], list[int]], text: str) -> list[Span]:
    """The spans of a text that both models cut into tokens of their own."""
    ends = []
    for model, ids in zip(both, texts, strict=True):
        found = byte_ends([model.tokens.raw(token) for token in ids], text.encode())
        if found is None:
            raise PromptError(
                f"The tokenizer of {model.facts.name} changes this text, so its tokens can't be placed in it.",
                "Compare models whose tokenizers keep texts as they are, or another text.",
            )
        ends.append(found)
    return by_bytes(*ends)
