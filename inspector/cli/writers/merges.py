"""Tokenizers taken apart: the ladder of each word, and two tokenizers over one text, as tables or JSON lines."""

from __future__ import annotations

from collections.abc import Callable
from typing import TextIO

from msgspec.structs import replace

from engine import protocol
from engine.errors import EngineError
from engine.protocol import Record, TakenApart, Tokenized
from engine.settings import LoadSettings
from inspector.cli.arguments import CliRequest
from inspector.cli.driver import Summary, Writer
from inspector.cli.writers.generation import PlainText
from inspector.cli.writers.json_lines import JsonLines
from inspector.display import visible
from inspector.state.merges import WIDTH, columns, faced, ladder_lines, summed, taken_apart


class TextApart:
    """The text that is taken apart: as it is given, or as the chat template writes it.

    Args:
        text: As it is given.
    """

    def __init__(self, text: str) -> None:
        self.text = text

    def take(self, record: Record) -> None:
        """Take in a record."""
        if isinstance(record, Tokenized):
            self.text = record.text

    def end(self, summary: Summary) -> None:
        """No figures."""


def merges_writer(
    request: CliRequest, text: TextApart, ladders: bool, summary: bool, out: TextIO, err: TextIO | None
) -> Writer:
    """The writer of one tokenizer taken apart, or of two.

    Args:
        request: What is cut.
        text: Takes in the records.
        ladders: Whether each word's ladder is told; JSON always has it.
        summary: Whether the figures alone are.
        out: Receives it.
        err: Receives the progress, where it is a terminal.
    """
    if request.jsonl:
        return JsonLines(out, request, text, _without_words if summary else lambda record: record)
    return ApartTable(out, err, request, text, ladders, summary)


def _without_words(record: Record) -> Record | None:
    return replace(record, words=()) if isinstance(record, TakenApart) else None


class ApartTable(PlainText):
    """Writes ladders, tokens that face each other, and figures.

    Args:
        out: Where to.
        err: Receives the progress.
        request: What is cut.
        text: Takes in the records.
        ladders: Whether each word's ladder is written.
        summary: Whether the figures alone are.
    """

    def __init__(
        self,
        out: TextIO,
        err: TextIO | None,
        request: CliRequest,
        text: TextApart,
        ladders: bool,
        summary: bool,
    ) -> None:
        super().__init__(out, err, request)
        self._text, self._ladders, self._summary = text, ladders, summary
        self._taken: list[TakenApart] = []

    def take(self, record: Record, text: str) -> None:
        """Take in a tokenizer, once it is taken apart, or show how far it is."""
        super().take(record, text)
        self._text.take(record)
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


# ---- without an engine ---------------------------------------------------------------------------


def needs_no_engine(model: str) -> bool:
    """True if a model's tokenizer is known from one file: that of the bundled model, or a file that is named."""
    return model == "pocket" or model.endswith(".json")


class TokenizerBackend:
    """Answers `TakeApart` alone, at once.

    Args:
        emit: Receives the answers.
    """

    def __init__(self, emit: Callable[[protocol.Received], None]) -> None:
        self._emit = emit

    def start(self) -> None:
        """Nothing is to be started."""

    def send(self, sent: protocol.Sent) -> None:
        """Answer."""
        command = sent.command
        assert isinstance(command, protocol.TakeApart)
        try:
            answer: Record = taken_apart(command, LoadSettings(), lambda: False)
        except EngineError as error:
            answer = protocol.Failure(command.kind, error.message, error.hint)
        for record in (answer, protocol.Ended(command.kind)):
            self._emit(protocol.Received(record, sent.id))

    def close(self, timeout: float = 2.0) -> bool:
        """Nothing is under way."""
        return True
