"""What sweeps measured, as tables or as one JSON object."""

from __future__ import annotations

import json
from typing import TextIO

from engine import protocol
from engine.protocol import Swept, contents
from inspector.cli.arguments import Request
from inspector.cli.summary import Summary
from inspector.cli.writers.plain import PlainText
from inspector.display import visible
from inspector.scales import time_left
from inspector.tools.sweeps.tables import BAR, tables
from inspector.widgets.charts import bar


class BenchText(PlainText):
    """Shows how far the measuring is, and writes what came of it.

    Args:
        out: Receives the figures.
        err: Receives the progress, where it is a terminal.
        request: Which model.
        as_json: One object instead of tables.
    """

    def __init__(self, out: TextIO, err: TextIO | None, request: Request, *, as_json: bool) -> None:
        super().__init__(out, err, request)
        self._json = as_json
        self._swept: Swept | None = None

    def take(self, record: protocol.Record, text: str) -> None:
        """Take in one record."""
        match record:
            case protocol.Measuring():
                filled = bar(record.done / record.total, BAR).replace(" ", "·")
                self._show(
                    f"{filled} {record.done}/{record.total} {record.detail}{time_left(record.left_ms)}"
                )
            case Swept(last=True):
                self._swept = record
            case _:
                super().take(record, text)

    def end(self, summary: Summary) -> None:
        """Write the figures; nothing where the measuring was broken off."""
        self._show("")
        if self._swept is None:
            self._say("cancelled: nothing was measured to the end\n")
            return
        self._out.write(json.dumps(as_object(self._swept)) + "\n" if self._json else tables(self._swept))
        self._out.flush()
        self._say("".join(f"note        {visible(note)}\n" for note in (*self._notes, *self._swept.notes)))


def as_object(swept: Swept) -> dict[str, object]:
    """All that was measured, every single value and the medians, as JSON can hold it."""
    points = [
        {
            "sweep": point.sweep,
            "at": point.at,
            "figures": [
                {"name": f.name, "unit": f.unit, "median": f.median, "values": list(f.values)}
                for f in point.figures
            ],
        }
        for point in swept.points
    ]
    whole = contents(swept)
    del whole["last"]  # it always is
    return {**whole, "how": dict(swept.how), "points": points}
