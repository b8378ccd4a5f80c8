"""The scores of a text as a table or as JSON lines."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import accumulate, pairwise
from typing import TextIO

from engine import protocol
from engine.protocol import PromptToken
from inspector.cli.arguments import Request
from inspector.cli.driver import Writer
from inspector.cli.summary import Summary
from inspector.cli.writers.jsonl import Json, JsonLines, number, prompt_token
from inspector.cli.writers.plain import PlainText, figures
from inspector.display import pad, token_label
from inspector.scales import bits, milliseconds, percent, prompt_rate

TOKEN_CELLS = 20
HEAD = ("pos", "token", "p", "logprob", "bits", "rank", "entropy")
FIGURES = ("model",)


def writer(request: Request, summary: bool, out: TextIO, err: TextIO | None) -> Writer:
    """The writer that a request asks for.

    Args:
        request: What is scored.
        summary: Whether the tokens are left out.
        out: Receives the scores.
        err: Receives the progress, where it is a terminal, and what it took.
    """
    kind = ScoreLines(out, request) if request.jsonl else ScoreTable(out, err, request)
    kind.tokens = not summary
    return kind


class Score:
    """The figures of a text, from its tokens as they become known; the first has nothing before it, and so no score."""

    def __init__(self) -> None:
        self.total = 0
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
        self.notes: tuple[str, ...] = ()
        self._logprobs: list[float] = []

    def take(self, record: protocol.Record) -> tuple[PromptToken, ...]:
        """Take in one record; returns the tokens that it made known."""
        match record:
            case protocol.PromptOpened():
                self.total, self.notes = len(record.tokens), record.notes
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
        """Whether all tokens but the first are scored."""
        return self.total > 0 and self.scored == self.total - 1

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


# ---- JSON lines -------------------------------------------------------------------------------


class ScoreLines(JsonLines):
    """Writes the events of a score: `model`, one `token` for each, `score`."""

    tokens = True
    """Whether each token is written."""

    def __init__(self, out: TextIO, request: Request) -> None:
        super().__init__(out, request)
        self._score = Score()

    def take(self, record: protocol.Record, text: str) -> None:
        """Write the tokens that a record made known."""
        known = self._score.take(record)
        if isinstance(record, protocol.ModelFacts):
            super().take(record, text)
        for token in known if self.tokens else ():
            self._write(token_event(token))

    def end(self, summary: Summary) -> None:
        """Write the text's figures."""
        self._write(score_event(self._score))


def token_event(token: PromptToken) -> Json:
    """One token."""
    surprisal = None if token.logprob is None else max(0.0, -token.logprob / math.log(2))
    return {
        "event": "token",
        **prompt_token(token),
        "surprisal_bits": number(surprisal),
        "candidates": [_candidate(candidate) for candidate in token.candidates],
    }


def _candidate(candidate: protocol.Candidate) -> Json:

    raw, logprob, rank = candidate.raw.hex(), number(candidate.logprob), candidate.rank
    return {"id": candidate.id, "text": candidate.text, "raw": raw, "logprob": logprob, "rank": rank}


def score_event(score: Score) -> Json:
    """The whole text, or as much of it as was scored."""
    return {
        "event": "score",
        "complete": score.complete,
        "tokens": score.total,
        "scored": score.scored,
        "bytes": score.bytes,
        "characters": score.characters,
        "logprob": number(score.logprob),
        "mean_logprob": number(score.mean),
        "perplexity": number(score.perplexity),
        "bits": number(score.bits),
        "bits_per_byte": number(score.bits_per_byte),
        "bits_per_character": number(score.bits_per_character),
        "ms": score.ms,
        "notes": list(score.notes),
    }


# ---- the table --------------------------------------------------------------------------------


class ScoreTable(PlainText):
    """Writes a line a token as they become known, then the text's figures; what it took to standard error."""

    tokens = True
    """Whether each token is written."""

    def __init__(self, out: TextIO, err: TextIO | None, request: Request) -> None:
        super().__init__(out, err, request)
        self._score = Score()

    def take(self, record: protocol.Record, text: str) -> None:
        """Write the tokens that a record made known, or show how far it is."""
        known = self._score.take(record)
        if isinstance(record, protocol.PrefillChunk | protocol.PromptReadings):
            self._show("" if self._streams else f"scored {self._score.scored + 1}/{self._score.total}")
        else:
            super().take(record, text)
        if known and self.tokens:
            self._show("")
            self._write(known, heading=isinstance(record, protocol.PromptOpened))

    @property
    def _streams(self) -> bool:
        """Whether the terminal shows the tokens as they come, which is progress enough."""
        return self.tokens and self._out.isatty()

    def _write(self, tokens: Iterable[PromptToken], heading: bool) -> None:
        lines = [line(HEAD)] if heading else []
        self._out.write("".join([*lines, *(row(token) for token in tokens)]))
        self._out.flush()

    def end(self, summary: Summary) -> None:
        """Write the figures."""
        self._show("")
        if self._score.total:
            apart = "\n" if self.tokens else ""
            self._out.write(apart + "".join(f"{name:<19}{value}\n" for name, value in sums(self._score)))
            self._out.flush()
        self._sum_up([*figures(summary, self._request, FIGURES), ("took", _cost(self._score))])


def row(token: PromptToken) -> str:
    """One token as a line of the table."""
    label = token_label(token.text, token.raw)
    if token.logprob is None or token.prob is None:
        return line((str(token.position + 1), label, "", "", "", "", ""))
    entropy = "" if token.entropy_bits is None else bits(token.entropy_bits)
    surprisal = bits(-token.logprob / math.log(2))
    cells = percent(token.prob), f"{token.logprob:.4f}", surprisal, str(token.rank), entropy
    return line((str(token.position + 1), label, *cells))


def line(cells: tuple[str, ...]) -> str:
    """Cells as a line of the table."""
    number, label, *others = cells
    widths = (9, 10, 7, 7, 8)
    numbers = "".join(f"  {cell:>{width}}" for cell, width in zip(others, widths, strict=True))
    return f"{number:>6}  {pad(label, TOKEN_CELLS)}{numbers}".rstrip() + "\n"


def sums(score: Score) -> list[tuple[str, str]]:
    """The figures of a text as names and values."""
    broken = "" if score.complete else " before it was stopped"
    if score.mean is None or score.perplexity is None:
        return [("tokens", f"{score.total}, of which none was scored{broken}")]
    lines = [
        ("tokens", f"{score.total}, of which {score.scored} were scored{broken}"),
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
