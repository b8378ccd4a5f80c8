"""Spans of a text in two models: common borders, what each made of its tokens there, how far they are apart."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple, Protocol

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from msgspec import Struct

from engine.errors import Cancelled, PromptError, StepError
from engine.logits.node_sampler import RowReader
from engine.model.forward import Runner
from engine.model.tokens import Tokens
from engine.protocol import Candidate, LockstepSpan
from engine.sampling.ranking import Row, rank_of, ranked, sum_of_products
from engine.task import Stopped
from engine.tree import Chunks, chunk_end, chunks_go_on

# ---- where two cuts of one text have common borders --------------------------------------------


class Span(NamedTuple):
    """The tokens of both cuts between two borders: places from `first` to before `end`."""

    first: int
    end: int
    other_first: int
    other_end: int


def one_by_one(count: int, other: int = 0) -> list[Span]:
    """The spans of a text that has the same tokens in both, `other` places later in the second."""
    return [Span(place, place + 1, place + other, place + other + 1) for place in range(count)]


def by_bytes(ends: Sequence[int], other_ends: Sequence[int]) -> list[Span]:
    """The spans between the common borders of two cuts.

    Args:
        ends: Bytes of the text up to the end of each token; marks that a tokenizer adds have none.
        other_ends: The other cut's.
    """
    borders, other_borders = _borders(ends), _borders(other_ends)
    common = [end for end in borders if end in other_borders and end > 0]
    spans, first, other_first = [], borders.get(0, 0), other_borders.get(0, 0)
    for end in common:
        spans.append(Span(first, borders[end], other_first, other_borders[end]))
        first, other_first = borders[end], other_borders[end]
    return spans


def _borders(ends: Sequence[int]) -> dict[int, int]:
    """By byte, how many tokens are before a border there: marks without bytes belong to what is before them."""
    return {end: place + 1 for place, end in enumerate(ends)}


def byte_ends(raws: Sequence[bytes], text: bytes) -> list[int] | None:
    """Bytes of a text up to the end of each of its tokens; None where the tokens don't spell the text.

    Not the text's own are the marks that a tokenizer adds at both ends, and the space that sentencepiece puts before
    the first word.
    """
    joined, ends = b"".join(raws), list(accumulate(map(len, raws)))
    starts = [0, *ends]
    places = (place for start in starts for place in (start, start + joined.startswith(b" ", start)))
    begin = next((place for place in places if joined.startswith(text, place)), None)
    if begin is None:
        return None
    return [min(max(end - begin, 0), len(text)) for end in ends]


def first_difference(one: Tokens, other: Tokens) -> int | None:
    """The first id that is another token in two tokenizers; None where all are the same.

    One may have more rows than the other as long as no token of its own has them: they are padding.
    """
    for token in range(max(one.vocabulary, other.vocabulary)):
        mine = one.raw(token) if token < one.vocabulary else b""
        theirs = other.raw(token) if token < other.vocabulary else b""
        if mine != theirs or one.is_special(token) != other.is_special(token):
            return token
    return None


def leading_marks(tokens: Tokens, ids: Sequence[int]) -> list[int]:
    """The marks that a tokenizer put before a text: they begin every window of it."""
    own = next((place for place, token in enumerate(ids) if not tokens.is_special(token)), 0)
    return list(ids[:own])


LEAST_WINDOW = 16


def window_size(context_window: int | None, wanted: int | None) -> int:
    """Tokens of a model's in a window, the marks among them.

    Args:
        context_window: The model's; None where it has no bound.
        wanted: None for all that fits.

    Raises:
        PromptError: A window of so few tokens tells nothing.
    """
    if wanted is not None and wanted < LEAST_WINDOW:
        raise PromptError(f"A window of {wanted} tokens is too short.", f"Give at least {LEAST_WINDOW}.")
    return min(wanted or 10**9, context_window or 10**9)


class Window(NamedTuple):
    """Some spans that are read together."""

    first: int
    scored: int
    """The first span that wasn't read in the window before."""
    end: int


def windows(spans: Sequence[Span], size: int, other_size: int) -> Iterator[Window]:
    """Cut a text into windows that overlap by half, so that what is scored has at least as much before it.

    Args:
        spans: Of the whole text.
        size: Tokens of the first cut in a window at most.
        other_size: Of the second.

    Yields:
        One window where the text fits.
    """
    first = scored = 0
    while scored < len(spans):
        end = scored + 1  # a span of more tokens than a window is read all the same
        while end < len(spans) and _fits(spans[first], spans[end], size, other_size):
            end += 1
        yield Window(first, scored, end)
        scored, half = end, (spans[end - 1].end - spans[first].first) // 2
        while first < scored - 1 and spans[scored - 1].end - spans[first].first > half:
            first += 1


def _fits(first: Span, last: Span, size: int, other_size: int) -> bool:
    return last.end - first.first <= size and last.other_end - first.other_first <= other_size


# ---- how far two distributions over the same tokens are apart, in float64 ----------------------

LogProbs = npt.NDArray[np.float64]
"""Log-probabilities, float64, shape (vocabulary,)."""


def logprobs_of(logits: Row) -> LogProbs:
    """The float64 log-softmax of a row of logits.

    Raises:
        StepError: The row holds values that are not numbers.
    """
    wide = logits.astype(np.float64)
    wide -= wide.max()
    wide -= np.log(np.exp(wide).sum())
    if np.isnan(wide).any():
        raise StepError(
            "The model's logits are not numbers here.",
            "The weights may be damaged, or the precision too low: try --dtype float32.",
        )
    return wide


def kl_nats(one: LogProbs, other: LogProbs) -> float:
    """KL(P||Q) of two distributions, in nats: the sum of p (ln p - ln q).

    Rounding may leave it some 1e-17 below 0, which is given as 0. It is infinite where Q gives 0 to what P doesn't.

    Args:
        one: Of P.
        other: Of Q, over the same tokens.
    """
    probs = np.exp(one)
    live: npt.NDArray[Any] = probs > 0
    if live.all():
        return max(0.0, sum_of_products(probs, one - other))
    return max(0.0, sum_of_products(probs[live], one[live] - other[live]))


def entropy_bits(logprobs: LogProbs) -> float:
    """Shannon entropy in bits."""
    probs = np.exp(logprobs)
    live = probs > 0
    return max(0.0, -sum_of_products(probs[live], logprobs[live]) / float(np.log(2)))


# ---- rows of logits along a path, chunk by chunk -----------------------------------------------

ROWS_BYTES = 2**26
"""Of the rows of a chunk at most: 64 MiB, 110 rows of a vocabulary of 150,000."""


class RowSource(Protocol):
    """Where the rows of one model along one path come from."""

    def after(self, place: int) -> Row:
        """The logits after a token of the path, float32, shape (vocabulary,); places are asked for in order."""


class ChunkedRows:
    """Runs a path in chunks as its rows are asked for.

    Args:
        runner: Its cache holds a beginning of the path; none of the rows before its end can be asked for.
        vocabulary: Values of a row, which bound the tokens of a chunk.
        ids: The whole path (checked by the caller: an id beyond the embedding ends the process).
        stopped: Polled before each chunk.
        like: Where another path's chunks ended, so that equal models give equal bits; may grow while this one runs.
            None for chunks of about 100 ms.
        chunks: Which tokens run in chunks, where the cache's numbers depend on that; None for all.
    """

    def __init__(
        self,
        runner: Runner,
        vocabulary: int,
        ids: Sequence[int],
        stopped: Stopped,
        like: Sequence[int] | None = None,
        chunks: Chunks | None = None,
    ) -> None:
        self._chunks = chunks if runner.kv.chunks_matter else None
        if self._chunks is not None and not chunks_go_on(runner.kv.chunks, self._chunks, runner.kv.offset):
            runner.kv.clear()
        self._runner, self._ids, self._stopped = runner, ids, stopped
        self._like = like
        self._sizer = runner.chunk_sizer(max(8, ROWS_BYTES // (4 * vocabulary)))
        self.first = self._end = runner.kv.offset
        """Place of the first row that can be asked for."""
        self._rows = np.empty((0, 0), np.float32)
        self.ends: list[int] = []
        """Where its chunks ended."""
        self.ms = 0.0
        """Of its forwards, the logits of every token included."""

    def after(self, place: int) -> Row:
        """See `RowSource`.

        Raises:
            Cancelled: `stopped` returned True.
        """
        while place >= self._end:
            self._advance()
        row: Row = self._rows[place - self.first]
        return row

    def _advance(self) -> None:
        if self._stopped():
            raise Cancelled
        begun = time.perf_counter()
        end = min(self._end + self._sizer.size, len(self._ids))
        if self._like is not None:
            end = next((each for each in self._like if each > self._end), end)
        if self._chunks is not None:
            end = min(end, max(chunk_end(self._chunks, self._end), self._end + 1))
        ids = self._ids[self._end : end]
        self._rows = np.array(self._runner.forward_logits(ids))
        self.first, self._end = self._end, end
        self.ends.append(end)
        mx.clear_cache()
        ms = (time.perf_counter() - begun) * 1000
        self._sizer.learn(len(ids), ms)
        self.ms += ms


# ---- reading spans in both models --------------------------------------------------------------


class SpanReading(Struct, frozen=True):
    """The reading of a span's tokens by one model."""

    logits: Row | None
    """Before the first of them; None where nothing is before it."""
    logprobs: LogProbs | None
    logprob: float | None
    """Of the scored ones together."""
    scored: int
    rank: int | None
    """Of the first."""


class Side:
    """One model along its cut of a text, from the beginning to the end.

    Args:
        tokens: Its tokenizer.
        ids: The tokens of the text.
        rows: Its logits along them.
        compared: The rows of logits up to here belong to tokens of both models; None for all.
    """

    def __init__(
        self, tokens: Tokens, ids: Sequence[int], rows: RowSource, compared: int | None = None
    ) -> None:
        self._tokens, self._ids, self._rows, self._compared = tokens, ids, rows, compared
        self._reader = RowReader(tokens)
        self._place, self._pending = 0, b""

    def read(self, begin: int, end: int) -> SpanReading:
        """What the model made of its tokens from place `begin` to before `end`; with none of what may follow."""
        logits = logprobs = logprob = rank = None
        scored = 0
        for place in range(max(begin, 1), max(end, begin + 1)):
            row = self._rows.after(place - 1)[: self._compared]
            after = logprobs_of(row)
            if place == begin:
                logits, logprobs = row, after
            if place < end:
                token = self._ids[place]
                logprob = (logprob or 0.0) + float(after[token])
                rank = rank_of(row, token) if place == begin else rank
                scored += 1
        return SpanReading(logits, logprobs, logprob, scored, rank)

    def text(self, begin: int, end: int) -> tuple[str, bytes]:
        """The characters and the bytes of its tokens from place `begin` to before `end`."""
        self._walk(begin)
        return self._walk(end), b"".join(map(self._tokens.raw, self._ids[begin:end]))

    def _walk(self, to: int) -> str:
        texts = []
        for token in self._ids[self._place : to]:
            text, self._pending = self._tokens.text(token, self._pending)
            texts.append(text)
        self._place = max(self._place, to)
        return "".join(texts)

    def candidates(self, reading: SpanReading, count: int) -> tuple[Candidate, ...]:
        """The most probable tokens before a span that begins where the text was read to."""
        if not count or reading.logits is None or reading.logprobs is None:
            return ()
        logits, logprobs = reading.logits, reading.logprobs
        return self._reader.candidates(
            logits, lambda ids: logprobs[ids].astype(logits.dtype), ranked(logits, count), self._pending, None
        )


class SpanReader:
    """Reads spans of one text in both models.

    Args:
        one: P.
        other: Q.
        by_ids: Whether both have the same tokens, so that their distributions can be compared.
        candidates: Most probable tokens of each that are listed.
    """

    def __init__(self, one: Side, other: Side, by_ids: bool, candidates: int) -> None:
        self._one, self._other, self._by_ids, self._count = one, other, by_ids, candidates

    def read(self, span: Span, position: int, node: int = -1) -> LockstepSpan:
        """One span; spans are read in the order of the text.

        Args:
            span: Places in both cuts; an empty one reads what may follow.
            position: Of its first token in the whole text.
            node: Of its last token, in a session's tree.

        Raises:
            StepError: A row of logits holds values that are not numbers.
            Cancelled: As the rows' sources.
        """
        mine = self._one.read(span.first, span.end)
        theirs = self._other.read(span.other_first, span.other_end)
        self._one.text(span.first, span.first)
        self._other.text(span.other_first, span.other_first)
        candidates = self._one.candidates(mine, self._count)
        other_candidates = self._other.candidates(theirs, self._count)
        text, raw = self._one.text(span.first, span.end)
        alone = self._by_ids and span.end - span.first == span.other_end - span.other_first == 1
        return LockstepSpan(
            node=node,
            position=position,
            tokens=span.end - span.first,
            other_tokens=span.other_end - span.other_first,
            text=text,
            raw=raw,
            logprob=mine.logprob,
            other_logprob=theirs.logprob,
            scored=mine.scored,
            other_scored=theirs.scored,
            entropy_bits=_entropy(mine),
            other_entropy_bits=_entropy(theirs),
            kl_nats=self._kl(mine, theirs),
            rank=mine.rank if alone else None,
            other_rank=theirs.rank if alone else None,
            same_top=self._same_top(mine, theirs),
            candidates=candidates,
            other_candidates=other_candidates,
        )

    def _kl(self, mine: SpanReading, theirs: SpanReading) -> float | None:
        if not self._by_ids or mine.logprobs is None or theirs.logprobs is None:
            return None
        return kl_nats(mine.logprobs, theirs.logprobs)

    def _same_top(self, mine: SpanReading, theirs: SpanReading) -> bool | None:
        if not self._by_ids or mine.logits is None or theirs.logits is None:
            return None
        return bool(mine.logits.argmax() == theirs.logits.argmax())


def _entropy(reading: SpanReading) -> float | None:
    return None if reading.logprobs is None else entropy_bits(reading.logprobs)
