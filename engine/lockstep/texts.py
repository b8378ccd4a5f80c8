"""Texts in both models: a given text, read window by window, and the continuations that both models generate."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from difflib import SequenceMatcher

import mlx.core as mx

from engine.errors import PromptError
from engine.lockstep.second import BATCH, PathRows, both_models, read_lockstep
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
from engine.model.forward import Runner
from engine.model.load import Loaded
from engine.protocol import (
    DiffText,
    LockstepEnded,
    LockstepRead,
    Measuring,
    PartWays,
    ReadLockstep,
    Record,
    WayPart,
    WaysParted,
)
from engine.sampling.ranking import Row
from engine.session.context import Context
from engine.session.node_records import Continuation
from engine.session.session import run_at
from engine.task import Task, poll


def diff_text(context: Context, command: DiffText, task: Task) -> Iterator[Record]:
    """Read a text in both models, window by window, in separate caches.

    Raises:
        StepError: There is no second model.
        PromptError: The text is empty, or a tokenizer changes it.
        Cancelled: The task was cancelled; the records so far stay valid.
    """
    first, second = context.model, both_models(context)
    other, by_ids = second.loaded, second.by_ids
    ids = first.tokens.encode(command.text)
    other_ids = ids if by_ids else other.tokens.encode(command.text)
    other.tokens.check(other_ids)
    spans = one_by_one(len(ids)) if by_ids else _by_bytes((first, other), (ids, other_ids), command.text)
    # special tokens before the text begin every window; spans by ids count them as tokens, spans by bytes don't
    marks, other_marks = leading_marks(first.tokens, ids), leading_marks(other.tokens, other_ids)
    size, other_size = (window_size(each.facts.context_window, command.window) for each in (first, other))
    cut = list(windows(spans, size - len(marks), other_size - len(other_marks)))

    def opened(
        model: Loaded, shift: int, own: list[int], like: list[int] | None = None
    ) -> tuple[PathRows, Side]:
        """One model's rows over the tokens of a window; the first token has the place `shift` in the text."""
        rows = PathRows(model.runner(), model.tokens.vocabulary, like=like)
        rows.follow(own, None, task.cancel.is_set)
        return rows, Side(model.tokens, own, rows.after, second.compared, command.candidates, shift)

    kv = other_kv = 0
    for start, scored, stop in cut:
        begin, end = spans[start], spans[stop - 1]
        # the first window's own tokens include the special ones, whether a span has them or not
        shift = other_shift = 0
        own, other_own = ids[: end.end], other_ids[: end.other_end]
        if start:
            shift, other_shift = begin.first - len(marks), begin.other_first - len(other_marks)
            own = [*marks, *own[begin.first :]]
            other_own = [*other_marks, *other_own[begin.other_first :]]
        rows, mine = opened(first, shift, own)
        other_rows, theirs = opened(other, other_shift, other_own, rows.ends if by_ids else None)
        spent = other_spent = 0.0
        for place in range(scored, stop, BATCH):
            batch = spans[place : min(place + BATCH, stop)]
            read = tuple(read_span(mine, theirs, span, by_ids) for span in batch)
            ms, other_ms = rows.ms - spent, other_rows.ms - other_spent
            yield LockstepRead(-1, batch[0].first, read, batch[-1].end, len(ids), ms, other_ms)
            spent, other_spent = rows.ms, other_rows.ms
        kv = max(kv, rows.runner.kv.reading().used_bytes)
        other_kv = max(other_kv, other_rows.runner.kv.reading().used_bytes)
    widest = max(spans[stop - 1].end - spans[start].first for start, _, stop in cut) if len(cut) > 1 else 0
    shared = min((spans[scored].first - spans[start].first for start, scored, _ in cut[1:]), default=0)
    yield LockstepEnded(widest, shared, kv, other_kv, mx.get_peak_memory())


def _by_bytes(both: tuple[Loaded, Loaded], texts: tuple[list[int], list[int]], text: str) -> list[Span]:
    """The spans of a text that the two models tokenize differently."""
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


# ---- both continue from one token --------------------------------------------------------------

MEET = 3
"""Number of equal words in a row that count as a meeting; one or two may be equal by chance."""
_WORDS = re.compile(r"\s*\S+|\s+")


def part_ways(context: Context, command: PartWays, task: Task) -> Iterator[Record]:
    """Let both models continue from a node, each with its own picks, until they diverge.

    Raises:
        StepError: There is no second model, or no such node.
        Cancelled: The task was cancelled.
    """
    reader, session, node, stopped = both_models(context), context.session, command.node, task.cancel.is_set
    yield from read_lockstep(context, ReadLockstep(node), task)
    begun, second = time.perf_counter(), reader.loaded
    found, (other_ids, _) = run_at(session, node, stopped), reader.paths(session, node)
    row = reader.rows.after(len(other_ids) - 1)
    mine = Continuation(session.tokens, session.facts, session.settings, session.tree.tokens(node))
    theirs = Continuation(second.tokens, second.facts, session.settings, other_ids)
    picks = _picks(mine, found.runner.copy(), found.row), _picks(theirs, reader.rows.hold().copy(), row)
    for done in range(command.tokens):
        poll(stopped)
        yield Measuring("PartWays", done, command.tokens, "both continue")
        for each in picks:
            next(each, None)
        if _ended(mine) and _ended(theirs):
            break
    parts = compared(
        *(path.tokens.join(path.ids[:-1] if _ended(path) else path.ids) for path in (mine, theirs))
    )
    yield WaysParted(
        node=node,
        tokens=command.tokens,
        ids=tuple(mine.ids),
        other_ids=tuple(theirs.ids),
        parts=parts,
        parted=_diverged(mine, theirs),
        meetings=sum(1 for place, each in enumerate(parts) if each.same and place),
        ms=(time.perf_counter() - begun) * 1000,
    )


def _picks(path: Continuation, runner: Runner, row: Row) -> Iterator[int]:
    """Take the tokens that a model picks, until it ends the sequence.

    Args:
        path: Continuation that receives the tokens.
        runner: Runner whose cache contains the path.
        row: Logits after the path.
    """
    while True:
        token = path.sample(row).sampled.picked
        path.take(token)
        yield token
        if token in path.tokens.eos_ids:
            return
        row = runner.forward(token)


def _ended(path: Continuation) -> bool:
    return path.tree[path.node].token in path.tokens.eos_ids


def _diverged(mine: Continuation, theirs: Continuation) -> int | None:
    """Number of the first continuation's tokens before the first byte that differs; None if all bytes are the same."""
    raws, others = ([path.tokens.raw(token) for token in path.ids] for path in (mine, theirs))
    one, other, before = b"".join(raws), b"".join(others), 0
    if one == other:
        return None
    for place, raw in enumerate(raws):
        if one[before : before + len(raw)] != other[before : before + len(raw)]:
            return place
        before += len(raw)
    return len(raws)


def compared(one: str, other: str) -> tuple[WayPart, ...]:
    """Split two texts, word by word, into the pieces that both have and those that differ."""
    mine, theirs = _WORDS.findall(one), _WORDS.findall(other)
    parts: list[WayPart] = []
    at = at_other = 0
    blocks = SequenceMatcher(None, mine, theirs, autojunk=False).get_matching_blocks()  # the last is empty
    for begin, begin_other, size in blocks:
        last = begin == len(mine) and begin_other == len(theirs) and not size
        if size < MEET and (begin, begin_other) != (0, 0) and not last:
            continue
        if (at, at_other) != (begin, begin_other):
            parts.append(WayPart("".join(mine[at:begin]), "".join(theirs[at_other:begin_other]), False))
        if size:
            text = "".join(mine[begin : begin + size])
            parts.append(WayPart(text, text, True))
        at, at_other = begin + size, begin_other + size
    return tuple(parts)
