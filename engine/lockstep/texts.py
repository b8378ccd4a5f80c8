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
    both, by_ids, compared = (first, second.loaded), second.aligned == "ids", second.compared(first)
    ids = first.tokens.encode(command.text)
    texts = ids, ids if by_ids else second.loaded.tokens.encode(command.text)
    second.loaded.tokens.check(texts[1])
    spans = one_by_one(len(ids)) if by_ids else _by_bytes(both, texts, command.text.encode())
    if not spans:
        raise PromptError("The two tokenizers have no common border in this text.", "Give a longer text.")
    # the mark that begins a text begins every window; spans by ids count it as a token, those by bytes don't
    marks = [leading_marks(each.tokens, text) for each, text in zip(both, texts, strict=True)]
    sizes = [window_size(each.facts.context_window, command.window) for each in both]
    cut = list(windows(spans, *(size - len(mark) for size, mark in zip(sizes, marks, strict=True))))
    kv_bytes = [0, 0]
    for window in cut:
        begin, end = spans[window.first], spans[window.end - 1]
        rows: list[PathRows] = []
        sides: list[Side] = []
        for model, text, mark, at, to in zip(
            both, texts, marks, (begin.first, begin.other_first), (end.end, end.other_end), strict=True
        ):
            # the first window has the marks among its own tokens, whether a span has them or not
            shift, own = (at - len(mark), [*mark, *text[at:to]]) if window.first else (0, text[:to])
            like = rows[0].ends if rows and by_ids else None
            rows.append(PathRows(model.runner(), model.tokens.vocabulary, like=like))
            rows[-1].follow(own, None, stopped)
            sides.append(Side(model.tokens, own, rows[-1].after, compared, command.candidates, shift))
        spent = [0.0, 0.0]
        for place in range(window.scored, window.end, BATCH):
            batch = spans[place : min(place + BATCH, window.end)]
            read = tuple(read_span(sides[0], sides[1], span, by_ids) for span in batch)
            ms, other_ms = (each.ms - before for each, before in zip(rows, spent, strict=True))
            yield LockstepRead(-1, batch[0].first, read, batch[-1].end, len(ids), ms, other_ms)
            spent = [each.ms for each in rows]
        used = [each.runner.kv.reading().used_bytes for each in rows]
        kv_bytes = list(map(max, kv_bytes, used))
    several = len(cut) > 1
    size = max(spans[each.end - 1].end - spans[each.first].first for each in cut)
    context = min((spans[each.scored].first - spans[each.first].first for each in cut[1:]), default=0)
    yield LockstepEnded(size if several else 0, context, kv_bytes[0], kv_bytes[1], mx.get_peak_memory())


def _by_bytes(both: tuple[Loaded, Loaded], texts: tuple[list[int], list[int]], raw: bytes) -> list[Span]:
    """The spans of a text that both models cut into tokens of their own."""
    ends = []
    for model, ids in zip(both, texts, strict=True):
        found = byte_ends([model.tokens.raw(token) for token in ids], raw)
        if found is None:
            raise PromptError(
                f"The tokenizer of {model.facts.name} changes this text, so its tokens can't be placed in it.",
                "Compare models whose tokenizers keep texts as they are, or another text.",
            )
        ends.append(found)
    return by_bytes(*ends)
