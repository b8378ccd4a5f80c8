"""Measurements as tables or as JSON: a profile, a race."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence
from typing import TextIO

from engine import protocol
from engine.protocol import KVCompared, Profiled, RaceEnded, RaceOpened, RaceStep, RooflineMeasured
from inspector.cli.arguments import CliRequest
from inspector.cli.driver import Summary, Writer
from inspector.cli.writers.generation import PlainText, figures
from inspector.cli.writers.json_lines import JsonLines
from inspector.display import visible
from inspector.tools.costs.tables import kv_table, profile_table, roofline_table
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
            case Profiled():
                self._tabulate(profile_table(record), record.how)
            case RooflineMeasured():
                self._tabulate(roofline_table(record), record.how)
            case KVCompared(last=True):
                self._tabulate(kv_table(record), f"By formula: {record.formula}.")
            case protocol.MetalCaptured():
                took = f"A step of {record.ms:.1f} ms, as Metal recorded it; Xcode opens the file."
                self._tabulate([f"Metal wrote {record.path}"], took)
            case _:
                super().take(record, "")

    def end(self, summary: Summary) -> None:
        """Write what the model is, and the notes."""
        self._show("")
        self._sum_up(figures(summary, self._request, ("model",)))

    def _tabulate(self, lines: Sequence[str], how: str) -> None:
        self._show("")
        width = max(40, min(100, shutil.get_terminal_size().columns - 2))
        below = textwrap.wrap(how, width, initial_indent="  ", subsequent_indent="  ")
        self._out.write("\n".join([*map(visible, lines), *below, "", ""]))
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
