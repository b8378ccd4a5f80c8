"""Measurements as tables or as JSON: a profile, a race."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from typing import TextIO

from engine import protocol
from engine.protocol import KVCompared, Profiled, RaceEnded, RaceOpened, RaceStep, RooflineMeasured
from inspector.blocks.blocks import Block, sentences
from inspector.blocks.paint import plain_lines
from inspector.cli.arguments import CliRequest
from inspector.cli.driver import Summary, Writer
from inspector.cli.writers.generation import PlainText, figures
from inspector.cli.writers.json_lines import JsonLines
from inspector.display import visible
from inspector.documents.costs import document
from inspector.tools.race.report import progress, report


def profile_writer(request: CliRequest, out: TextIO, err: TextIO | None) -> Writer:
    """The writer that a request for a profile asks for."""
    return JsonLines(out, request) if request.jsonl else ProfileTables(out, err, request)


def race_writer(request: CliRequest, out: TextIO, err: TextIO | None) -> Writer:
    """The writer that a request for a race asks for."""
    return JsonLines(out, request) if request.jsonl else RaceTable(out, err, request)


# ---- a profile --------------------------------------------------------------------------------


class ProfileTables(PlainText):
    """Writes each measurement as it comes."""

    def take(self, record: protocol.Record, text: str) -> None:
        """Take in one record, and show how far the measuring is."""
        match record:
            case protocol.Measuring():
                self._show(f"{record.command}: {record.detail} {record.done}/{record.total}")
            case protocol.Step():
                self._show(f"decoding: {record.index + 1} tokens")
            case Profiled() | RooflineMeasured() | KVCompared(last=True):
                self._write(document(record))
            case protocol.MetalCaptured():
                took = f"A step of {record.ms:.1f} ms, as Metal recorded it; Xcode opens the file."
                self._write(sentences([f"Metal wrote {visible(record.path)}", took], ""))
            case _:
                super().take(record, "")

    def end(self, summary: Summary) -> None:
        """Write what the model is, and the notes."""
        self._show("")
        self._sum_up(figures(summary, self._request, ("model",)))

    def _write(self, blocks: Iterable[Block]) -> None:
        self._show("")
        width = max(40, min(100, shutil.get_terminal_size().columns - 2))
        self._out.write("\n".join([*plain_lines(blocks, width), "", ""]))
        self._out.flush()


# ---- a race -----------------------------------------------------------------------------------


class RaceTable(PlainText):
    """Writes medians of windows, the chart and the verdict; a race that is broken off as far as it came."""

    def __init__(self, out: TextIO, err: TextIO | None, request: CliRequest) -> None:
        super().__init__(out, err, request)
        self._opened: RaceOpened | None = None
        self._steps: list[RaceStep] = []
        self._over = False

    def take(self, record: protocol.Record, text: str) -> None:
        """Take in one record, and show how far the race is."""
        match record:
            case RaceOpened():
                self._opened = record
            case protocol.Measuring():
                self._show(f"race: {record.detail} {record.done}/{record.total}")
            case RaceStep() if self._opened is not None:
                self._steps.append(record)
                self._show(progress(self._opened, record))
            case RaceEnded():
                self._over = True
            case _:
                super().take(record, text)

    def end(self, summary: Summary) -> None:
        """Write what was measured."""
        self._show("")
        if self._opened is not None and self._steps:
            columns = shutil.get_terminal_size().columns
            self._out.write(report(self._opened, self._steps, columns))
            self._out.flush()
        cancelled = [] if self._over else [("race", "cancelled")]
        self._sum_up([*figures(summary, self._request, ("model", "seed")), *cancelled])
