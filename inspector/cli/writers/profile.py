"""A profile as tables or as JSON lines."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence
from typing import TextIO

from engine import protocol
from engine.protocol import KVCompared, Profiled, RooflineMeasured, contents
from inspector.cli.arguments import Request
from inspector.cli.driver import Writer
from inspector.cli.summary import Summary
from inspector.cli.writers.jsonl import JsonLines
from inspector.cli.writers.plain import PlainText, figures
from inspector.display import visible
from inspector.tools.costs.tables import kv_table, profile_table, roofline_table

FIGURES = ("model",)


def writer(request: Request, out: TextIO, err: TextIO | None) -> Writer:
    """The writer that a request asks for."""
    return ProfileLines(out, request) if request.jsonl else ProfileTables(out, err, request)


# ---- JSON lines -------------------------------------------------------------------------------


class ProfileLines(JsonLines):
    """Writes the events of a profile: `model`, `prefill`, `prompt`, `profile`, `roofline`, `kv_costs`."""

    def take(self, record: protocol.Record, text: str) -> None:
        """Write the event of a record, if it has one; the steps before are left out."""
        match record:
            case Profiled():
                self._write({"event": "profile", **contents(record), "other_ms": record.other_ms})
            case RooflineMeasured():
                self._write({"event": "roofline", **contents(record), "ridge": record.ridge})
            case KVCompared(last=True):
                self._write({"event": "kv_costs", **contents(record)})
            case protocol.Step():
                pass
            case _:
                super().take(record, text)

    def end(self, summary: Summary) -> None:
        """Nothing: each measurement is an event of its own."""


# ---- tables -----------------------------------------------------------------------------------


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
            case _:
                super().take(record, "")

    def end(self, summary: Summary) -> None:
        """Write what the model is, and the notes."""
        self._show("")
        self._sum_up(figures(summary, self._request, FIGURES))

    def _tabulate(self, lines: Sequence[str], how: str) -> None:
        self._show("")
        width = max(40, min(100, shutil.get_terminal_size().columns - 2))
        below = textwrap.wrap(how, width, initial_indent="  ", subsequent_indent="  ")
        self._out.write("\n".join([*map(visible, lines), *below, "", ""]))
        self._out.flush()
