"""JSON lines: the records with the names of their fields, and figures at the end.

The JSON is strict and ASCII, so that any parser reads it and a terminal executes nothing in it.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, TextIO

from msgspec import Struct

from engine import protocol
from engine.protocol import CaptureFacts, ModelFacts, Record
from engine.recording.file import LoadSettingsUsed, SettingsUsed, as_json

if TYPE_CHECKING:
    from inspector.cli.arguments import CliRequest
    from inspector.cli.driver import Summary
    from inspector.cli.writers.generation import Report

PROGRESS = protocol.Loading, protocol.DraftLoading, protocol.Measuring, protocol.Restoring
"""Records of progress, which are not written."""


class FlagNotes(Struct, frozen=True, tag_field="event"):
    """Flags that have no effect together with the others: one sentence each."""

    notes: tuple[str, ...]


class CheckFailed(Struct, frozen=True, tag_field="event"):
    """A view of the model's internals that is not shown because one of its checks failed."""

    view: str
    """Name of its record."""
    facts: CaptureFacts


class JsonLines:
    """Writes a line for each record, and the settings with a model's facts, as a recording does.

    Args:
        out: Receives the lines; flushed after each.
        request: Its settings and notes are written.
        report: Makes the last line.
    """

    def __init__(self, out: TextIO, request: CliRequest, report: Report) -> None:
        self._out, self._request, self._report = out, request, report

    def take(self, record: Record, text: str) -> None:
        """Write a record."""
        self._report.take(record)
        written = None if isinstance(record, PROGRESS) else self._report.shown(record)
        if written is None:
            return
        facts = getattr(record, "facts", None)
        if isinstance(record, ModelFacts):
            notes = [FlagNotes(self._request.notes)] if self._request.notes else []
            self._write(LoadSettingsUsed(self._request.load), record)
            self._write(SettingsUsed(self._request.settings), *notes)
        elif isinstance(facts, CaptureFacts) and facts.failed is not None:
            self._write(CheckFailed(type(record).__name__, facts))
        else:
            self._write(written)

    def end(self, summary: Summary) -> None:
        """Write the figures."""
        if (last := self._report.end(summary)) is not None:
            self._write(last)

    def _write(self, *values: Struct) -> None:
        for value in values:
            self._out.write(json_line(value))
            self._out.flush()


def json_line(value: object) -> str:
    """A record, or another value that JSON can hold, as one line."""
    return re.sub(r"[^ -~]", lambda match: json.dumps(match[0])[1:-1], as_json(value).decode()) + "\n"
