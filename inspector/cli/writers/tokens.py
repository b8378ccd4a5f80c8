"""The tokens of a text, cut and scored: tables, or JSON lines."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from itertools import accumulate, pairwise
from typing import TextIO

from msgspec import Struct, convert

from engine import protocol
from engine.protocol import Piece, PromptToken, SegmentKind, Tokenized
from engine.segments import MARKUP
from inspector.cli.arguments import CliRequest
from inspector.cli.driver import Summary, Writer
from inspector.cli.writers.generation import PlainText, figures
from inspector.cli.writers.json_lines import JsonLines
from inspector.display import pad, shown_bytes, token_label
from inspector.scales import bits, milliseconds, percent, prompt_rate
from inspector.state.segments import labels, left_out_words

FIGURES = ("model",)
_BYTES = 64
"""Bytes of a token that the table shows at most."""


def score_writer(request: CliRequest, summary: bool, out: TextIO, err: TextIO | None) -> Writer:
    """The writer that a request for scores asks for.

    Args:
        request: What is scored.
        summary: Whether the tokens are left out.
        out: Receives the scores.
        err: Receives the progress, where it is a terminal, and what it took.
    """
    if not request.jsonl:
        return ScoreTable(out, err, request, not summary)
    return JsonLines(out, request, Score(), _model_alone if summary else _whole)


def token_writer(request: CliRequest, summary: bool, out: TextIO, err: TextIO | None) -> Writer:
    """The writer that a request for tokens asks for; as `score_writer`."""
    if not request.jsonl:
        return TokenTable(out, err, request, not summary)
    return JsonLines(out, request, CountedTokens(), _model_alone if summary else _whole)


def _whole(record: protocol.Record) -> protocol.Record:
    return record


def _model_alone(record: protocol.Record) -> protocol.Record | None:
    return record if isinstance(record, protocol.ModelFacts) else None


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


class Score:
    """The figures of a text, from its tokens as they become known; the first has nothing before it, and so no score."""

    def __init__(self) -> None:
        self.tokens = 0
        """Tokens of the text."""
        self.bytes = 0
        """Of the text, in the tokens that were scored."""
        self.characters = 0
        """Of the text, that these tokens finished."""
        self._own: list[int] = []
        self.ms = 0.0
        """Of the model, the logits of every token included."""
        self._warm_tokens, self._warm_ms, self._read_ms = 0, 0.0, 0.0
        self._done = 0
        """Tokens that ran."""
        self._logprobs: list[float] = []

    def take(self, record: protocol.Record) -> tuple[PromptToken, ...]:
        """Take in one record; returns the tokens that it made known."""
        match record:
            case protocol.PromptOpened():
                self.tokens = len(record.tokens)
                self._own = _text_bytes(record)
                return record.tokens[:1]
            case protocol.PrefillChunk():
                self.ms += record.ms
                if not record.cold:
                    self._warm_tokens += record.done - self._done
                    self._warm_ms += record.ms
                self._done = record.done
            case protocol.PromptReadings():
                self.ms += record.ms
                self._read_ms += record.ms
                for token in record.tokens:
                    self._add(token)
                return record.tokens
        return ()

    def _add(self, token: PromptToken) -> None:
        if token.logprob is not None:
            self._logprobs.append(token.logprob)
            own = self._own[token.position]
            self.bytes += own
            self.characters += max(0, len(token.text) - (len(token.raw) - own))

    @property
    def tps(self) -> float:
        """Tokens scored a second, without the model's first chunk, a cold start; 0 where there was no other."""
        if not self._warm_tokens or not self.scored:
            return 0.0
        return 1000 / (self._warm_ms / self._warm_tokens + self._read_ms / self.scored)

    @property
    def scored(self) -> int:
        """Tokens whose logprob is known."""
        return len(self._logprobs)

    @property
    def complete(self) -> bool:
        """True if all tokens but the first are scored."""
        return self.tokens > 0 and self.scored == self.tokens - 1

    @property
    def logprob(self) -> float:
        """Of all scored tokens together, natural logarithm."""
        return math.fsum(self._logprobs)

    @property
    def mean(self) -> float | None:
        """Logprob of a token, None where none is scored."""
        return self.logprob / self.scored if self.scored else None

    @property
    def perplexity(self) -> float | None:
        """exp(-mean): of how many equally probable tokens the model had to choose, as it were."""
        return None if self.mean is None else math.exp(-self.mean) if self.mean > -700 else math.inf

    @property
    def bits(self) -> float:
        """Surprisal of all scored tokens together."""
        return max(0.0, -self.logprob / math.log(2))

    @property
    def bits_per_byte(self) -> float | None:
        """Over the bytes of the text in the scored tokens; None where they have none."""
        return self.bits / self.bytes if self.bytes else None

    @property
    def bits_per_character(self) -> float | None:
        """Over the characters that the scored tokens finished; None where they finished none."""
        return self.bits / self.characters if self.characters else None

    def end(self, summary: Summary) -> ScoreSummary:
        """All of them."""
        return convert(self, ScoreSummary, from_attributes=True)


class ScoreTable(PlainText):
    """Writes a line a token as they become known, then the text's figures; what it took to standard error."""

    def __init__(self, out: TextIO, err: TextIO | None, request: CliRequest, tokens: bool) -> None:
        super().__init__(out, err, request)
        self._tokens = tokens
        self._score = Score()

    def take(self, record: protocol.Record, text: str) -> None:
        """Write the tokens that a record made known, or show how far it is."""
        known = self._score.take(record)
        if isinstance(record, protocol.PrefillChunk | protocol.PromptReadings):
            self._show("" if self._streams else f"scored {self._score.scored + 1}/{self._score.tokens}")
        else:
            super().take(record, text)
        if known and self._tokens:
            self._show("")
            self._write(known, heading=isinstance(record, protocol.PromptOpened))

    @property
    def _streams(self) -> bool:
        """True if the terminal shows the tokens as they come, which is progress enough."""
        return self._tokens and self._out.isatty()

    def _write(self, tokens: Iterable[PromptToken], heading: bool) -> None:
        lines = [score_line("pos", "token", "p", "logprob", "bits", "rank", "entropy")] if heading else []
        self._out.write("".join([*lines, *(score_row(token) for token in tokens)]))
        self._out.flush()

    def end(self, summary: Summary) -> None:
        """Write the figures."""
        self._show("")
        if self._score.tokens:
            apart = "\n" if self._tokens else ""
            self._out.write(apart + "".join(f"{name:<19}{value}\n" for name, value in sums(self._score)))
            self._out.flush()
        self._sum_up([*figures(summary, self._request, FIGURES), ("took", _cost(self._score))])


def score_row(token: PromptToken) -> str:
    """One token as a line of the table."""
    label = token_label(token.text, token.raw)
    if token.logprob is None or token.prob is None:
        return score_line(str(token.position + 1), label, "", "", "", "", "")
    entropy = "" if token.entropy_bits is None else bits(token.entropy_bits)
    surprisal = bits(-token.logprob / math.log(2))
    cells = percent(token.prob), f"{token.logprob:.4f}", surprisal, str(token.rank), entropy
    return score_line(str(token.position + 1), label, *cells)


def score_line(number: str, label: str, *others: str) -> str:
    """Cells as a line of the table of scores."""
    widths = (9, 10, 7, 7, 8)
    numbers = "".join(f"  {cell:>{width}}" for cell, width in zip(others, widths, strict=True))
    return f"{number:>6}  {pad(label, 20)}{numbers}".rstrip() + "\n"


def sums(score: Score) -> list[tuple[str, str]]:
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
    if score.bits_per_byte is not None:
        lines.append(("bits per byte", f"{score.bits_per_byte:.4f} over {score.bytes} bytes"))
    if score.bits_per_character is not None:
        lines.append(
            ("bits per character", f"{score.bits_per_character:.4f} over {score.characters} characters")
        )
    return lines


def _cost(score: Score) -> str:
    if not score.scored or not score.ms:
        return milliseconds(score.ms)
    return f"{milliseconds(score.ms)} for {score.scored} tokens, {prompt_rate(score.tps)}"


def _text_bytes(opened: protocol.PromptOpened) -> list[int]:
    """How many bytes of each token are the text's own.

    Not the text's own are the marks that a tokenizer adds at both ends, and the space that sentencepiece puts before
    the first word. Where the tokens don't spell the text, as with a tokenizer that changes letters, all bytes count.
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
    """How many tokens a text has; bytes and characters are those of the tokens that are no special ones."""

    tokens: int
    special: int
    characters: int
    bytes: int
    bytes_per_token: float | None


def counts(cut: Tokenized) -> TokenCounts:
    """Count them."""
    text = [piece for piece in cut.pieces if not piece.special]
    size = sum(len(piece.raw) for piece in text)
    return TokenCounts(
        tokens=len(cut.pieces),
        special=len(cut.pieces) - len(text),
        characters=sum(len(piece.text) for piece in text),
        bytes=size,
        bytes_per_token=size / len(text) if text else None,
    )


class CountedTokens:
    """The counts of the text that was cut."""

    def __init__(self) -> None:
        self._counts: TokenCounts | None = None

    def take(self, record: protocol.Record) -> None:
        """Take in a record."""
        if isinstance(record, Tokenized):
            self._counts = counts(record)

    def end(self, summary: Summary) -> TokenCounts | None:
        """Of all of it."""
        return self._counts


class TokenTable(PlainText):
    """Writes a line a token, then their counts."""

    def __init__(self, out: TextIO, err: TextIO | None, request: CliRequest, tokens: bool) -> None:
        super().__init__(out, err, request)
        self._tokens = tokens

    def take(self, record: protocol.Record, text: str) -> None:
        """Write the table, once the tokens are known, or show how far it is."""
        super().take(record, text)
        if not isinstance(record, Tokenized):
            return
        self._show("")
        kinds = labels(record.segments, len(record.pieces))
        rows = [token_row(record.pieces, index, kinds[index][0]) for index in range(len(record.pieces))]
        head = token_line("#", "id", "token", "", "bytes", "whose" if record.segments.runs else None)
        table = [head, *rows, "\n"] if self._tokens else []
        self._out.write("".join([*table, in_words(record)]))
        self._out.flush()

    def end(self, summary: Summary) -> None:
        """Write the notes."""
        self._show("")
        self._sum_up([])


def token_row(pieces: tuple[Piece, ...], index: int, kind: SegmentKind | None = None) -> str:
    """One token as a line of the table; counted from 0, as in the JSON lines.

    Args:
        pieces: All tokens.
        index: Of this one.
        kind: Whose it is; None where nothing tells that.
    """
    piece = pieces[index]
    mark = "special" if piece.special else ""
    label, shown = token_label(piece.text, piece.raw), shown_bytes(pieces, index, _BYTES)
    whose = None if kind is None else "" if kind == MARKUP else kind
    return token_line(str(index), str(piece.id), label, mark, shown, whose)


def token_line(index: str, id: str, label: str, special: str, shown: str, whose: str | None = None) -> str:
    """Cells as a line of the table of tokens; without a column for whose a token is where that is None."""
    kind = "" if whose is None else f"{whose:<11}  "
    return f"{index:>6}  {id:>7}  {pad(label, 24)}  {kind}{special:<7}  {shown}".rstrip() + "\n"


def in_words(cut: Tokenized) -> str:
    """`12 tokens, 2 of them special; the others have 45 bytes, 4.50 a token, and 45 characters`."""
    told = counts(cut)
    special, each = told.special, told.bytes_per_token
    words = f"{told.tokens:,} token{'s' * (told.tokens != 1)}"
    words += f", {special:,} of them special" if special else ""
    if each is not None:
        words += "; the others have " if special else " of "
        words += f"{told.bytes:,} bytes and {told.characters:,} characters, {each:.2f} bytes a token"
    kinds = Counter(kind for kind, _ in labels(cut.segments, len(cut.pieces)) if kind is not None)
    whose = ", ".join(f"{kind} {number:,}" for kind, number in kinds.items())
    left = "".join(f"{left_out_words(each)}\n" for each in cut.segments.left_out)
    return words + "\n" + (f"Segments: {whose}\n" if whose else "") + left
