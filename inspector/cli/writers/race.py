"""A race as a table and a chart, or as JSON lines."""

from __future__ import annotations

import shutil
from typing import TextIO

from engine import protocol
from engine.protocol import RaceEnded, RaceOpened, RaceStep, contents
from inspector.cli.arguments import Request
from inspector.cli.driver import Writer
from inspector.cli.summary import Summary
from inspector.cli.writers.jsonl import JsonLines
from inspector.cli.writers.plain import PlainText, figures
from inspector.tools.race.report import progress, report

FIGURES = ("model", "seed")


def writer(request: Request, out: TextIO, err: TextIO | None) -> Writer:
    """The writer that a request asks for."""
    return RaceLines(out, request) if request.jsonl else RaceTable(out, err, request)


# ---- JSON lines -------------------------------------------------------------------------------


class RaceLines(JsonLines):
    """Writes the events of a race: `model`, `prefill`, `prompt`, `race`, `race_step`, `race_end`."""

    def __init__(self, out: TextIO, request: Request) -> None:
        super().__init__(out, request)
        self._ended: RaceEnded | None = None

    def take(self, record: protocol.Record, text: str) -> None:
        """Write the event of a record, if it has one."""
        match record:
            case RaceOpened():
                self._write({"event": "race", **contents(record)})
            case RaceStep():
                self._write({"event": "race_step", **contents(record), "equal": record.equal})
            case RaceEnded():
                self._ended = record
            case _:
                super().take(record, text)

    def end(self, summary: Summary) -> None:
        """Write the last event."""
        reason = "length" if self._ended else "cancelled"
        self._write({"event": "race_end", "reason": reason, **(contents(self._ended) if self._ended else {})})


# ---- the table and the chart ------------------------------------------------------------------


class RaceTable(PlainText):
    """Writes medians of windows, the chart and the verdict; a race that is broken off as far as it came."""

    def __init__(self, out: TextIO, err: TextIO | None, request: Request) -> None:
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
        self._sum_up([*figures(summary, self._request, FIGURES), *cancelled])
