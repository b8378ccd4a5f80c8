"""The tokens of a text as a table or as JSON lines."""

from __future__ import annotations

from typing import TextIO

from engine import protocol
from engine.protocol import Piece, Tokenized
from inspector.cli.arguments import Request
from inspector.cli.driver import Writer
from inspector.cli.summary import Summary
from inspector.cli.writers.jsonl import Json, JsonLines
from inspector.cli.writers.plain import PlainText
from inspector.display import pad, token_label
from inspector.state.token_bytes import shown_bytes

TOKEN_CELLS = 24
_BYTES = 64
"""Bytes of a token that the table shows at most."""


def writer(request: Request, summary: bool, out: TextIO, err: TextIO | None) -> Writer:
    """The writer that a request asks for.

    Args:
        request: What is cut.
        summary: Whether the tokens are left out.
        out: Receives the tokens and their counts.
        err: Receives the progress, where it is a terminal, and notes.
    """
    if request.jsonl:
        return TokenLines(out, request, not summary)
    return TokenTable(out, err, request, not summary)


def counts(cut: Tokenized) -> Json:
    """How many there are; bytes and characters are those of the tokens that are no special ones."""
    text = [piece for piece in cut.pieces if not piece.special]
    size = sum(len(piece.raw) for piece in text)
    return {
        "tokens": len(cut.pieces),
        "special": len(cut.pieces) - len(text),
        "characters": sum(len(piece.text) for piece in text),
        "bytes": size,
        "bytes_per_token": size / len(text) if text else None,
    }


class TokenLines(JsonLines):
    """Writes one `token` event for each, then their `counts`.

    Args:
        out: Where to; flushed after each line.
        request: What is cut.
        tokens: Whether each token is written.
    """

    def __init__(self, out: TextIO, request: Request, tokens: bool) -> None:
        super().__init__(out, request)
        self._tokens = tokens

    def take(self, record: protocol.Record, text: str) -> None:
        """Write the tokens, once they are known."""
        if not isinstance(record, Tokenized):
            return
        for index, piece in enumerate(record.pieces if self._tokens else ()):
            self._write(token_event(index, piece))
        self._write({"event": "counts", **counts(record)})

    def end(self, summary: Summary) -> None:
        """Nothing more: the counts came with the tokens."""


def token_event(index: int, piece: Piece) -> Json:
    """One token; bytes are hexadecimal."""
    return {
        "event": "token",
        "index": index,
        "id": piece.id,
        "text": piece.text,
        "bytes": piece.raw.hex(),
        "special": piece.special,
    }


class TokenTable(PlainText):
    """Writes a line a token, then their counts.

    Args:
        out: Receives the table.
        err: Receives the progress, where it is a terminal, and notes.
        request: What is cut.
        tokens: Whether each token is written.
    """

    def __init__(self, out: TextIO, err: TextIO | None, request: Request, tokens: bool) -> None:
        super().__init__(out, err, request)
        self._tokens = tokens

    def take(self, record: protocol.Record, text: str) -> None:
        """Write the table, once the tokens are known, or show how far it is."""
        super().take(record, text)
        if not isinstance(record, Tokenized):
            return
        self._show("")
        rows = [row(record.pieces, index) for index in range(len(record.pieces))]
        table = [line("#", "id", "token", "", "bytes"), *rows, "\n"] if self._tokens else []
        self._out.write("".join([*table, in_words(record)]))
        self._out.flush()

    def end(self, summary: Summary) -> None:
        """Write the notes."""
        self._show("")
        self._sum_up([])


def row(pieces: tuple[Piece, ...], index: int) -> str:
    """One token as a line of the table; counted from 0, as in the JSON lines."""
    piece = pieces[index]
    mark = "special" if piece.special else ""
    return line(
        str(index),
        str(piece.id),
        token_label(piece.text, piece.raw),
        mark,
        shown_bytes(pieces, index, _BYTES),
    )


def line(index: str, id: str, label: str, special: str, shown: str) -> str:
    """Cells as a line of the table."""
    return f"{index:>6}  {id:>7}  {pad(label, TOKEN_CELLS)}  {special:<7}  {shown}".rstrip() + "\n"


def in_words(cut: Tokenized) -> str:
    """`12 tokens, 2 of them special; the others have 45 bytes, 4.50 a token, and 45 characters`."""
    told = counts(cut)
    special, each = told["special"], told["bytes_per_token"]
    words = f"{told['tokens']:,} token{'s' * (told['tokens'] != 1)}"
    words += f", {special:,} of them special" if special else ""
    if each is not None:
        words += "; the others have " if special else " of "
        words += f"{told['bytes']:,} bytes and {told['characters']:,} characters, {each:.2f} bytes a token"
    return words + "\n"
