"""Tables of a text's tokens: with ids and bytes, with scores, and beside another tokenizer's."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise

from msgspec import Struct
from msgspec.structs import replace

from engine import protocol
from engine.protocol import PromptToken, Record, TakenApart, Tokenized
from engine.segments import MARKUP
from inspector.blocks.blocks import Fact
from inspector.cli.arguments import CliRequest
from inspector.cli.driver import Summary
from inspector.cli.writers.generation import Report
from inspector.display import pad, shown_bytes, token_label, visible
from inspector.scales import bits, counted, milliseconds, percent, prompt_rate
from inspector.state.merges import WIDTH, columns, faced, ladder_lines, summed
from inspector.state.segments import labels, left_out_words

_BYTES = 64
"""Most bytes of a token that the table shows."""


class Listing(Report):
    """A list of tokens, and its figures.

    Args:
        listed: Whether to write the tokens, not only the figures.
    """

    def __init__(self, listed: bool = True) -> None:
        self.listed = listed

    def shown(self, record: Record) -> Record | None:
        """Every record, or the model's facts alone."""
        return record if self.listed or isinstance(record, protocol.ModelFacts) else None


# ---- scores -----------------------------------------------------------------------------------


class ScoreSummary(Struct, frozen=True, tag_field="event"):
    """The figures of a text that was scored."""

    complete: bool
    tokens: int
    scored: int
    bytes: int
    characters: int
    logprob: float
    mean: float | None
    perplexity: float | None
    bits: float
    bits_per_byte: float | None
    bits_per_character: float | None
    ms: float
    tps: float


class Score(Listing):
    """The figures of a text, updated as its tokens are scored; the first has nothing before it, and so no score."""

    def __init__(self, listed: bool = True) -> None:
        super().__init__(listed)
        self.tokens = self._bytes = self._characters = 0
        self._own: list[int] = []
        """Number of bytes of each token that belong to the text."""
        self._warm_tokens, self._warm_ms, self._read_ms, self._ms = 0, 0.0, 0.0, 0.0
        self._done = 0
        """Number of tokens that were prefilled."""
        self._logprobs: list[float] = []

    def take(self, record: Record) -> None:
        match record:
            case protocol.PromptOpened():
                self.tokens = len(record.tokens)
                self._own = _text_bytes(record)
            case protocol.PrefillChunk():
                self._ms += record.ms
                if not record.cold:
                    self._warm_tokens += record.done - self._done
                    self._warm_ms += record.ms
                self._done = record.done
            case protocol.PromptReadings():
                self._ms += record.ms
                self._read_ms += record.ms
                for token in record.tokens:
                    if token.logprob is not None:
                        self._logprobs.append(token.logprob)
                        own = self._own[token.position]
                        self._bytes += own
                        self._characters += max(0, len(token.text) - (len(token.raw) - own))

    @property
    def scored(self) -> int:
        """Number of tokens with a known logprob."""
        return len(self._logprobs)

    @property
    def figures(self) -> ScoreSummary:
        """The figures so far."""
        scored, logprob = self.scored, math.fsum(self._logprobs)
        mean, surprisal = logprob / scored if scored else None, max(0.0, -logprob / math.log(2))
        warm = self._warm_ms / self._warm_tokens if self._warm_tokens and scored else None
        return ScoreSummary(
            complete=self.tokens > 0 and scored == self.tokens - 1,
            tokens=self.tokens,
            scored=scored,
            bytes=self._bytes,
            characters=self._characters,
            logprob=logprob,
            mean=mean,
            perplexity=None if mean is None else math.exp(-mean) if mean > -700 else math.inf,
            bits=surprisal,
            bits_per_byte=surprisal / self._bytes if self._bytes else None,
            bits_per_character=surprisal / self._characters if self._characters else None,
            ms=self._ms,
            tps=0.0 if warm is None else 1000 / (warm + self._read_ms / scored),
        )

    def end(self, summary: Summary) -> ScoreSummary:
        """The figures of the whole text."""
        return self.figures

    def progress(self, record: Record) -> str | None:
        if isinstance(record, protocol.PrefillChunk | protocol.PromptReadings):
            # rows on the terminal are progress enough
            return "" if self.listed and self.on_terminal else f"scored {self.scored + 1}/{self.tokens}"
        return super().progress(record)

    def lines(self, record: Record) -> Iterator[str]:
        """A line per token, once its score is known."""
        if self.listed and isinstance(record, protocol.PromptOpened):
            yield from (SCORED, *map(score_row, record.tokens[:1]))
        elif self.listed and isinstance(record, protocol.PromptReadings):
            yield from map(score_row, record.tokens)

    def rest(self) -> Iterator[str]:
        """The text's figures."""
        if self.tokens:
            yield from [""] if self.listed else []
            yield from (f"{name:<19}{value}" for name, value in sums(self.figures))

    def costs(self, summary: Summary, request: CliRequest) -> list[Fact]:
        score = self.figures
        tokens = f" for {score.scored} tokens" if score.scored and score.ms else ""
        rate = f", {prompt_rate(score.tps)}" if tokens and score.tps else ""
        return [*super().costs(summary, request), ("took", milliseconds(score.ms) + tokens + rate)]


def score_row(token: PromptToken) -> str:
    """One token as a line of the table."""
    cells: Sequence[str] = ()
    if token.logprob is not None and token.prob is not None:
        entropy = "" if token.entropy_bits is None else bits(token.entropy_bits)
        surprisal = bits(-token.logprob / math.log(2))
        cells = percent(token.prob), f"{token.logprob:.4f}", surprisal, str(token.rank), entropy
    return score_line(str(token.position + 1), token_label(token.text, token.raw), *cells)


def score_line(number: str, label: str, *others: str) -> str:
    """Cells as a line of the table of scores."""
    numbers = "".join(f"  {cell:>{width}}" for cell, width in zip(others, (9, 10, 7, 7, 8), strict=False))
    return f"{number:>6}  {pad(label, 20)}{numbers}".rstrip()


SCORED = score_line("pos", "token", "p", "logprob", "bits", "rank", "entropy")


def sums(score: ScoreSummary) -> list[Fact]:
    """The figures of a text as names and values."""
    broken = "" if score.complete else " before it was stopped"
    if score.mean is None or score.perplexity is None:
        return [("tokens", f"{score.tokens}, of which none was scored{broken}")]
    lines = [
        ("tokens", f"{score.tokens}, of which {score.scored} were scored{broken}"),
        ("logprob", f"{score.logprob:.4f}, {score.mean:.4f} a token"),
        ("perplexity", f"{score.perplexity:.4f}"),
        ("bits", f"{score.bits:.2f}, {score.bits / score.scored:.4f} a token"),
    ]
    for unit, rate, number in (
        ("byte", score.bits_per_byte, score.bytes),
        ("character", score.bits_per_character, score.characters),
    ):
        if rate is not None:
            lines.append((f"bits per {unit}", f"{rate:.4f} over {number} {unit}s"))
    return lines


def _text_bytes(opened: protocol.PromptOpened) -> list[int]:
    """The number of bytes of each token that belong to the text.

    The special tokens that a tokenizer adds at both ends don't, nor does the space that sentencepiece puts before the
    first word. If the tokens don't spell the text, as with a tokenizer that changes letters, all bytes count.
    """
    text, raws = opened.text.encode("utf-8", "surrogatepass"), [token.raw for token in opened.tokens]
    joined, ends = b"".join(raws), list(accumulate(map(len, raws)))
    starts = [end - len(raw) for end, raw in zip(ends, raws, strict=True)]
    places = (place for start in starts for place in (start, start + joined.startswith(b" ", start)))
    begin = next((place for place in places if joined.startswith(text, place)), None)
    if begin is None:
        return [len(raw) for raw in raws]
    inside = [min(max(end - begin, 0), len(text)) for end in ends]
    return [end - start for start, end in pairwise([0, *inside])]


# ---- tokens -----------------------------------------------------------------------------------


class TokenCounts(Struct, frozen=True, tag_field="event"):
    """The number of tokens of a text; bytes and characters are those of the tokens that are not special."""

    tokens: int
    special: int
    characters: int
    bytes: int
    bytes_per_token: float | None


class CountedTokens(Listing):
    """The tokens of a text, and their counts."""

    _counts: TokenCounts | None = None

    def take(self, record: Record) -> None:
        """Count the tokens of a tokenized text."""
        if isinstance(record, Tokenized):
            self._counts = counts(record)

    def end(self, summary: Summary) -> TokenCounts | None:
        """The counts of the whole text."""
        return self._counts

    def lines(self, record: Record) -> Iterator[str]:
        """A line per token, then their counts."""
        if not isinstance(record, Tokenized):
            return
        if self.listed:
            yield token_line("#", "id", "token", "", "bytes", "whose" if record.segments.runs else None)
            kinds = labels(record.segments, len(record.pieces))
            for index, (piece, (kind, _)) in enumerate(zip(record.pieces, kinds, strict=True)):
                label, shown = token_label(piece.text, piece.raw), shown_bytes(record.pieces, index, _BYTES)
                whose = "" if kind == MARKUP else kind
                mark = "special" * piece.special
                yield token_line(str(index + 1), str(piece.id), label, mark, shown, whose)
            yield ""
        yield from in_words(record)

    def costs(self, summary: Summary, request: CliRequest) -> list[Fact]:
        """No figures, as only the tokenizer is loaded."""
        return []


def counts(cut: Tokenized) -> TokenCounts:
    """Count the tokens of a text."""
    text = [piece for piece in cut.pieces if not piece.special]
    size = sum(len(piece.raw) for piece in text)
    return TokenCounts(
        tokens=len(cut.pieces),
        special=len(cut.pieces) - len(text),
        characters=sum(len(piece.text) for piece in text),
        bytes=size,
        bytes_per_token=size / len(text) if text else None,
    )


def token_line(index: str, id: str, label: str, special: str, shown: str, whose: str | None = None) -> str:
    """Cells as a line of the table of tokens; None for `whose` leaves its column out."""
    kind = "" if whose is None else f"{whose:<11}  "
    return f"{index:>6}  {id:>7}  {pad(label, 24)}  {kind}{special:<7}  {shown}".rstrip()


def in_words(cut: Tokenized) -> Iterator[str]:
    """The counts, such as `3 tokens of 12 bytes and 12 characters, 4.00 bytes a token`, and the segments."""
    told = counts(cut)
    words = counted(told.tokens, "token")
    words += f", {told.special:,} of them special" if told.special else ""
    if told.bytes_per_token is not None:
        words += "; the others have " if told.special else " of "
        words += f"{told.bytes:,} bytes and {told.characters:,} characters, "
        words += f"{told.bytes_per_token:.2f} bytes a token"
    yield words
    kinds = Counter(kind for kind, _ in labels(cut.segments, len(cut.pieces)) if kind is not None)
    if kinds:
        yield "Segments: " + ", ".join(f"{kind} {number:,}" for kind, number in kinds.items())
    yield from map(left_out_words, cut.segments.left_out)


# ---- two tokenizers, or the merges of one -----------------------------------------------------


class TextApart(Report):
    """The trace of one or two tokenizers over a text: the given one, or the one that the chat template writes.

    Args:
        text: The given text.
        ladders: Whether the table has each word's ladder; JSON always has it.
        listed: Whether the table has more than the figures.
    """

    def __init__(self, text: str, ladders: bool = False, listed: bool = True) -> None:
        self.text, self.ladders, self.listed = text, ladders, listed
        self.taken: list[TakenApart] = []

    def take(self, record: Record) -> None:
        """Keep the text that the chat template wrote, and the trace of each tokenizer."""
        if isinstance(record, Tokenized):
            self.text = record.text
        elif isinstance(record, TakenApart):
            self.taken.append(record)

    def shown(self, record: Record) -> Record | None:
        """The trace of a tokenizer, with or without its words."""
        if self.listed:
            return record
        return replace(record, words=()) if isinstance(record, TakenApart) else None

    def progress(self, record: Record) -> str | None:
        return "" if isinstance(record, TakenApart) else super().progress(record)

    def lines(self, record: Record) -> Iterable[str]:
        """The ladders of a tokenizer."""
        if isinstance(record, TakenApart) and self.ladders and self.listed:
            return ladder_lines(record)
        return ()

    def rest(self) -> Iterator[str]:
        """The tokens of two tokenizers side by side, and the figures of each."""
        if len(self.taken) == 2 and self.listed:
            for first, second in faced(columns(*self.taken), WIDTH):
                yield from (first, second, "")
        yield from (f"{visible(taken.name)}: {summed(taken)}" for taken in self.taken)

    def costs(self, summary: Summary, request: CliRequest) -> list[Fact]:
        """No figures, as only the tokenizer is loaded."""
        return []
