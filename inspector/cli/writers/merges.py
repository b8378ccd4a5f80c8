"""Tokenizers taken apart: the ladder of each word, and two tokenizers over one text, as tables or JSON lines."""

from __future__ import annotations

from typing import TextIO

from engine.protocol import Record, TakenApart, Tokenized, WordApart
from inspector.cli.arguments import CliRequest
from inspector.cli.driver import Summary
from inspector.cli.writers.generation import JsonLines, PlainText
from inspector.display import visible
from inspector.state.merges import (
    WIDTH,
    columns,
    faced,
    head,
    labels,
    ladder_lines,
    rung,
    summed,
    token_labels,
    told_rungs,
)
from inspector.state.record_json import Json, pick, record_json


def merges_writer(
    request: CliRequest, ladders: bool, summary: bool, out: TextIO, err: TextIO | None
) -> ApartLines | ApartTable:
    """The writer of one tokenizer taken apart, or of two.

    Args:
        request: What is cut.
        ladders: Whether each word's ladder is told.
        summary: Whether the figures alone are.
        out: Receives it.
        err: Receives the progress, where it is a terminal.
    """
    if request.jsonl:
        return ApartLines(out, request, ladders, summary)
    return ApartTable(out, err, request, ladders, summary)


class ApartLines(JsonLines):
    """Writes a `tokenizer` event for each of them, and a `word` for each word of it.

    Args:
        out: Where to.
        request: What is cut.
        ladders: Whether the words have their ladders.
        summary: Whether they are left out.
    """

    def __init__(self, out: TextIO, request: CliRequest, ladders: bool, summary: bool) -> None:
        super().__init__(out, request)
        self._ladders, self._summary = ladders, summary
        self.text = request.prompt
        """What is taken apart."""

    def take(self, record: Record, text: str) -> None:
        """Write a tokenizer, once it is taken apart."""
        if isinstance(record, Tokenized):
            self.text = record.text
        if not isinstance(record, TakenApart):
            return
        self._write("tokenizer", record_json(record, node={}, words={}))
        for word in () if self._summary else record.words:
            self._write("word", {"tokenizer": record.name}, self._word(word, head(record.algorithm)))

    def _word(self, word: WordApart, by: str) -> Json:
        tokens = {"tokens": token_labels(word)}
        if not self._ladders:
            return {**pick(word, "begin", "end", "ids", "ends", "added"), **tokens}
        told = [place for place in told_rungs(word) if place is not None]
        ladder = [
            {"rung": place, by: (made := rung(word, place)).value, "pieces": labels(made.pieces)}
            for place in told
        ]
        return {**record_json(word), **tokens, "ladder": ladder}

    def end(self, summary: Summary) -> None:
        """Nothing more."""


class ApartTable(PlainText):
    """Writes ladders, tokens that face each other, and figures.

    Args:
        out: Where to.
        err: Receives the progress.
        request: What is cut.
        ladders: Whether each word's ladder is written.
        summary: Whether the figures alone are.
    """

    def __init__(
        self, out: TextIO, err: TextIO | None, request: CliRequest, ladders: bool, summary: bool
    ) -> None:
        super().__init__(out, err, request)
        self._ladders, self._summary = ladders, summary
        self._taken: list[TakenApart] = []
        self.text = request.prompt
        """What is taken apart."""

    def take(self, record: Record, text: str) -> None:
        """Take in a tokenizer, once it is taken apart, or show how far it is."""
        super().take(record, text)
        if isinstance(record, Tokenized):
            self.text = record.text
        if not isinstance(record, TakenApart):
            return
        self._show("")
        self._taken.append(record)
        if self._ladders and not self._summary:
            self._out.writelines(f"{line}\n" for line in ladder_lines(record))
            self._out.flush()

    def end(self, summary: Summary) -> None:
        """Write what the tokenizers make of the text side by side, and their figures."""
        self._show("")
        if len(self._taken) == 2 and not self._summary:
            pairs = faced(columns(*self._taken), WIDTH)
            self._out.writelines(f"{first}\n{second}\n\n" for first, second in pairs)
        for taken in self._taken:
            self._out.write(f"{visible(taken.name)}: {summed(taken)}\n")
        self._out.flush()
        self._sum_up([])
