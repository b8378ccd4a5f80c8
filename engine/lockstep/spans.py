"""Spans of a text between the token borders that two models share: each model's reading there, and how far they
differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from engine.errors import PromptError
from engine.logits.node_sampler import list_candidates
from engine.model.tokens import Tokens
from engine.protocol import Candidate, LockstepSpan
from engine.sampling.ranking import Row, checked_masses, rank_of, ranked, sum_of_products

# ---- common token borders of two tokenizations of a text ---------------------------------------


class Span(NamedTuple):
    """The tokens of both tokenizations between two borders: places from `first` to before `end`."""

    first: int
    end: int
    other_first: int
    other_end: int


def one_by_one(count: int, other: int = 0) -> list[Span]:
    """The spans of a text that has the same tokens in both, `other` places later in the second."""
    return [Span(place, place + 1, place + other, place + other + 1) for place in range(count)]


def by_bytes(ends: Sequence[int], other_ends: Sequence[int]) -> list[Span]:
    """The spans between the common borders of two tokenizations.

    Args:
        ends: Bytes of the text up to the end of each token; special tokens that a tokenizer adds have none.
        other_ends: The same for the other tokenization.
    """
    # by byte, the number of tokens before that border: special tokens without bytes belong to the text before them
    borders, other_borders = (
        {end: place + 1 for place, end in enumerate(each)} for each in (ends, other_ends)
    )
    common = [end for end in borders if end in other_borders and end > 0]
    spans, first, other_first = [], borders.get(0, 0), other_borders.get(0, 0)
    for end in common:
        spans.append(Span(first, borders[end], other_first, other_borders[end]))
        first, other_first = borders[end], other_borders[end]
    return spans


def byte_ends(raws: Sequence[bytes], text: bytes) -> list[int] | None:
    """Bytes of a text up to the end of each of its tokens; None if the tokens don't spell the text.

    Special tokens that a tokenizer adds at both ends, and the space that sentencepiece puts before the first word, are
    not part of the text.
    """
    joined, ends = b"".join(raws), list(accumulate(map(len, raws)))
    starts = [0, *ends]
    places = (place for start in starts for place in (start, start + joined.startswith(b" ", start)))
    begin = next((place for place in places if joined.startswith(text, place)), None)
    if begin is None:
        return None
    return [min(max(end - begin, 0), len(text)) for end in ends]


def first_difference(one: Tokens, other: Tokens) -> int | None:
    """The first id that is another token in two tokenizers; None if all are the same.

    One may have more rows than the other if these have no tokens: they are padding.
    """
    for token in range(max(one.vocabulary, other.vocabulary)):
        mine = one.raw(token) if token < one.vocabulary else b""
        theirs = other.raw(token) if token < other.vocabulary else b""
        if mine != theirs or one.is_special(token) != other.is_special(token):
            return token
    return None


def leading_marks(tokens: Tokens, ids: Sequence[int]) -> list[int]:
    """The special tokens that a tokenizer put before a text; every window of it begins with them."""
    own = next((place for place, token in enumerate(ids) if not tokens.is_special(token)), 0)
    return list(ids[:own])


LEAST_WINDOW = 16


def window_size(context_window: int | None, wanted: int | None) -> int:
    """Number of a model's tokens in a window, with special tokens.

    Args:
        context_window: The model's context window; None for no bound.
        wanted: Requested number of tokens; None for all that fit.

    Raises:
        PromptError: The requested window is too short.
    """
    if wanted is not None and wanted < LEAST_WINDOW:
        raise PromptError(f"A window of {wanted} tokens is too short.", f"Give at least {LEAST_WINDOW}.")
    return min(wanted or 10**9, context_window or 10**9)


def windows(spans: Sequence[Span], size: int, other_size: int) -> Iterator[tuple[int, int, int]]:
    """Split a text into windows that overlap by half, so that scored tokens have about half a window of context.

    Args:
        spans: Spans of the whole text.
        size: Maximum number of the first model's tokens in a window.
        other_size: The same for the second model.

    Yields:
        For each window the indices of its first span, of the first that wasn't in the window before, and of its end;
        one window if the text fits.
    """
    first = scored = 0
    while scored < len(spans):
        end = scored + 1  # a span longer than a window is read, too
        while (
            end < len(spans)
            and spans[end].end - spans[first].first <= size
            and spans[end].other_end - spans[first].other_first <= other_size
        ):
            end += 1
        yield first, scored, end
        scored, half = end, (spans[end - 1].end - spans[first].first) // 2
        while first < scored - 1 and spans[scored - 1].end - spans[first].first > half:
            first += 1


# ---- distance of two distributions over the same tokens, in float64 ----------------------------

LogProbs = npt.NDArray[np.float64]
"""Log-probabilities, float64, shape (vocabulary,)."""


def logprobs_of(logits: Row) -> LogProbs:
    """The float64 log-softmax of a row of logits.

    Raises:
        StepError: The row contains values that are not numbers.
    """
    wide = checked_masses(logits).logits.astype(np.float64)
    wide -= wide.max()
    wide -= np.log(np.exp(wide).sum())
    return wide


def kl_nats(one: LogProbs, other: LogProbs) -> float:
    """KL(P||Q) of two distributions, in nats: the sum of p (ln p - ln q).

    If rounding leaves it some 1e-17 below 0, it is 0. It is infinite if a token has a probability of 0 only in Q.

    Args:
        one: Log-probabilities of P.
        other: Log-probabilities of Q, over the same tokens.
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


# ---- reading spans in both models --------------------------------------------------------------


class SpanReading(NamedTuple):
    """The reading of a span's tokens by one model."""

    before: tuple[Row, LogProbs] | None
    """Logits and their log-softmax before the first of the tokens; None at the beginning of the text."""
    logprob: float | None
    """Sum of the scored tokens' logprobs."""
    scored: int
    rank: int | None
    """Rank of the first token."""
    entropy_bits: float | None
    candidates: tuple[Candidate, ...]
    """Most probable tokens at the span's first place."""
    text: str


class Side:
    """One model along its tokens of a text, from the beginning to the end.

    Args:
        tokens: Its tokenizer.
        ids: Token ids of the text.
        after: Returns the logits after the token at a place, float32, shape (vocabulary,); called in order.
        compared: Number of values of a row that belong to tokens of both models; None for all.
        candidates: Number of most probable tokens to list.
        first: Place in the text of the first of `ids`.
    """

    def __init__(
        self,
        tokens: Tokens,
        ids: Sequence[int],
        after: Callable[[int], Row],
        compared: int | None,
        candidates: int,
        first: int = 0,
    ) -> None:
        self._tokens, self._ids, self._after, self._compared = tokens, ids, after, compared
        self._candidates, self._first = candidates, first
        self._place, self._pending = 0, b""

    def read(self, begin: int, end: int) -> SpanReading:
        """Read the tokens from place `begin` to before `end`; if there are none, only the distribution at `begin`.

        Raises:
            StepError: A row of logits contains values that are not numbers.
            Cancelled: Raised by `after`.
        """
        begin, end = begin - self._first, end - self._first
        before = logprob = rank = entropy = None
        scored, candidates = 0, tuple[Candidate, ...]()
        for place in range(max(begin, 1), max(end, begin + 1)):
            row = self._after(place - 1)[: self._compared]
            after = logprobs_of(row)
            if place == begin:
                before = row, after
            if place < end:
                token = self._ids[place]
                logprob = (logprob or 0.0) + float(after[token])
                rank = rank_of(row, token) if place == begin else rank
                scored += 1
        self._walk(begin)
        if before is not None:
            logits, logprobs = before
            entropy = entropy_bits(logprobs)
            if self._candidates:
                best = ranked(logits, self._candidates)
                candidates = list_candidates(
                    self._tokens,
                    logits,
                    lambda ids: logprobs[ids].astype(logits.dtype),
                    best,
                    self._pending,
                    None,
                )
        return SpanReading(before, logprob, scored, rank, entropy, candidates, self._walk(end))

    def _walk(self, to: int) -> str:
        """The characters of the tokens from the last place up to `to`."""
        texts = []
        for token in self._ids[self._place : to]:
            text, self._pending = self._tokens.text(token, self._pending)
            texts.append(text)
        self._place = max(self._place, to)
        return "".join(texts)

    def raw(self, begin: int, end: int) -> bytes:
        """The bytes of the tokens from place `begin` to before `end`."""
        return b"".join(map(self._tokens.raw, self._ids[begin - self._first : end - self._first]))


def read_span(one: Side, other: Side, span: Span, by_ids: bool, node: int = -1) -> LockstepSpan:
    """Read a span of one text in both models; spans are read in the order of the text.

    Args:
        one: The first model, P.
        other: The second model, Q.
        span: Places in both tokenizations; of an empty span only the distributions are read.
        by_ids: True if both have the same tokens, so that their distributions can be compared.
        node: Node of the last token, in a session's tree.

    Raises:
        StepError: A row of logits contains values that are not numbers.
        Cancelled: Raised by a side's `after`.
    """
    mine, theirs = one.read(span.first, span.end), other.read(span.other_first, span.other_end)
    alone = by_ids and span.end - span.first == span.other_end - span.other_first == 1
    kl = same_top = None
    if by_ids and mine.before is not None and theirs.before is not None:
        kl = kl_nats(mine.before[1], theirs.before[1])
        same_top = bool(mine.before[0].argmax() == theirs.before[0].argmax())
    return LockstepSpan(
        node=node,
        position=span.first,
        tokens=span.end - span.first,
        other_tokens=span.other_end - span.other_first,
        text=mine.text,
        raw=one.raw(span.first, span.end),
        logprob=mine.logprob,
        other_logprob=theirs.logprob,
        scored=mine.scored,
        other_scored=theirs.scored,
        entropy_bits=mine.entropy_bits,
        other_entropy_bits=theirs.entropy_bits,
        kl_nats=kl,
        rank=mine.rank if alone else None,
        other_rank=theirs.rank if alone else None,
        same_top=same_top,
        candidates=mine.candidates,
        other_candidates=theirs.candidates,
    )
