"""Reads spans of a text in two models: what each made of its own tokens there, and how far they are apart."""

from __future__ import annotations

from collections.abc import Sequence

from engine.frozen import frozen
from engine.lockstep.alignment import Span
from engine.lockstep.divergence import LogProbs, entropy_bits, kl_nats, logprobs_of
from engine.lockstep.rows import RowSource
from engine.logits.readings import RowReader
from engine.model.tokens import Tokens
from engine.protocol import Candidate, LockstepSpan
from engine.sampling.ranking import Row, rank_of


@frozen
class SpanReading:
    """What one model made of the tokens of a span."""

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
        logprobs = reading.logprobs.astype(reading.logits.dtype)
        return self._reader.candidates(reading.logits, logprobs, count, self._pending, None)


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
