"""Measurements as tables: a profile, a race."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable, Sequence

from engine import protocol
from engine.protocol import Record
from inspector.cli.driver import Summary
from inspector.cli.writers.generation import PlainText
from inspector.cli.writers.json_lines import EndFigures
from inspector.display import visible
from inspector.tools.costs.tables import kv_table, profile_table, roofline_table
from inspector.tools.race.report import progress, report


class ProfileTables(PlainText[EndFigures]):
    """Writes each measurement as it comes."""

    def _take(self, record: Record) -> None:
        match record:
            case protocol.Measuring():
                self._show(f"{record.command}: {record.detail} {record.done}/{record.total}")
            case protocol.Step():
                self._show(f"decoding: {record.index + 1} tokens")
            case protocol.Profiled():
                self._tabulate(profile_table(record), record.how)
            case protocol.RooflineMeasured():
                self._tabulate(roofline_table(record), record.how)
            case protocol.KVCompared(last=True):
                self._tabulate(kv_table(record), f"By formula: {record.formula}.")
            case protocol.MetalCaptured():
                took = f"A step of {record.ms:.1f} ms, as Metal recorded it; Xcode opens the file."
                self._tabulate([f"Metal wrote {record.path}"], took)
            case _:
                super()._take(record)

    def _tabulate(self, lines: Sequence[str], how: str) -> None:
        width = max(40, min(100, shutil.get_terminal_size().columns - 2))
        below = textwrap.wrap(how, width, initial_indent="  ", subsequent_indent="  ")
        self._write([*map(visible, lines), *below, ""])


class RaceSteps(EndFigures):
    """The steps of a race so far."""

    def __init__(self) -> None:
        self.opened: protocol.RaceOpened | None = None
        self.steps: list[protocol.RaceStep] = []
        self.over = False

    def take(self, record: Record) -> None:
        """Add a record."""
        match record:
            case protocol.RaceOpened():
                self.opened = record
            case protocol.RaceStep():
                self.steps.append(record)
            case protocol.RaceEnded():
                self.over = True


class RaceTable(PlainText[RaceSteps]):
    """Writes medians of windows, the chart and the verdict; a race that is broken off as far as it came."""

    names = ("model", "seed")

    def _take(self, record: Record) -> None:
        match record:
            case protocol.Measuring():
                self._show(f"race: {record.detail} {record.done}/{record.total}")
            case protocol.RaceStep() if self._figures.opened is not None:
                self._show(progress(self._figures.opened, record))
            case _:
                super()._take(record)

    def _rest(self) -> Iterable[str]:
        race = self._figures
        if race.opened is None or not race.steps:
            return ()
        return report(race.opened, race.steps, shutil.get_terminal_size().columns).splitlines()

    def _costs(self, summary: Summary) -> list[tuple[str, str]]:
        return super()._costs(summary) + ([] if self._figures.over else [("race", "cancelled")])
