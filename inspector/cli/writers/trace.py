"""A run kept as a trace, so that it opens on the screen: `inspector score FILE -o OUT`, `inspector replay OUT`."""

from __future__ import annotations

import time
from pathlib import Path

from engine.errors import EngineError
from engine.paths import free, typed
from engine.protocol import ModelFacts, Record
from engine.settings import LoadSettings, Settings
from engine.trace import Entry, save_as, worth_keeping
from inspector.cli.arguments import Request
from inspector.cli.driver import Writer
from inspector.cli.summary import Summary
from inspector.version import program


class TraceWriter:
    """Hands everything on to another writer, and keeps what a trace has.

    Args:
        writer: Receives the records and the summary.
        request: The model and the settings.
    """

    def __init__(self, writer: Writer, request: Request) -> None:
        self.entries: list[Entry] = []
        """What happened until now, in order."""
        self._writer, self._request = writer, request
        self._began = time.monotonic()

    def take(self, record: Record, text: str) -> None:
        """Keep a record, and hand it on."""
        if isinstance(record, ModelFacts):
            self._keep(self._request.load)
        if worth_keeping(record):
            self._keep(record)
        if isinstance(record, ModelFacts):
            self._keep(self._request.settings)
        self._writer.take(record, text)

    def _keep(self, value: Record | Settings | LoadSettings) -> None:
        self.entries.append(Entry(value, time.monotonic() - self._began))

    def end(self, summary: Summary) -> None:
        """Hand the summary on."""
        self._writer.end(summary)

    def save(self, path: Path, force: bool) -> None:
        """Write the trace.

        Args:
            path: Where to.
            force: Whether a file that is there may be replaced.

        Raises:
            TraceError: It can't be written; what was there before is untouched.
        """
        save_as(path, self.entries, program(), force)


def place(output: str | None, force: bool, instead: str) -> Path | None:
    """Where the trace goes, checked before the work of making it; None where none is wanted.

    Args:
        output: As it was typed.
        force: Whether a file that is there may be replaced.
        instead: What goes to standard output, as a sentence goes on.

    Raises:
        EngineError: It is standard output, a file is there, or no file can be.
    """
    if output is None:
        return None
    if output == "-":
        raise EngineError(
            f"The trace can't go to standard output: {instead}.", "Name a file: -o trace.jsonl.gz."
        )
    return free(typed(output), force)
