"""The list of models in the dialog that opens one, and the facts of the one that is highlighted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.cells import cell_len
from rich.segment import Segment

from engine.models_on_disk.facts import DiskModel
from inspector.display import pad, quoted, truncate, visible
from inspector.state.disk_models import COLUMNS, cells, facts
from inspector.widgets.canvas import Canvas, Row
from inspector.widgets.fact_table import fact_rows
from inspector.widgets.pick_list import PickList

WIDTHS = {"family": 14, "params": 8, "bits": 9, "size": 10, "context": 9, "KV/token": 10, "fits": 13}
"""Cells of the columns after the name, their left gap included."""
GIVES_WAY = ("KV/token", "context", "family", "params", "size", "bits")
"""The columns that are left out where there is no room for the name, the first one first."""
NAME = 24
"""Cells that the name gets at least."""
TYPED = "a directory or a hub id; where it is no directory, the hub's cache is asked, then the hub"


def fitting(width: int) -> tuple[str, ...]:
    """The columns that there is room for in `width` cells, beside the name."""
    left = list(COLUMNS)
    for name in GIVES_WAY:
        if width - sum(WIDTHS[each] for each in left) >= NAME:
            break
        left.remove(name)
    return tuple(left)


class ModelList(PickList):
    """Models, and what was typed where that may name another one."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._rows: tuple[DiskModel | str, ...] = ()
        self._available: int | None = None
        self._present: Path | None = None

    @property
    def chosen(self) -> DiskModel | str | None:
        """The highlighted model, or what was typed; None where the list is empty."""
        return self._rows[self.highlighted] if self.highlighted < len(self._rows) else None

    def put(
        self, rows: Sequence[DiskModel | str], at: int, available: int | None, present: Path | None
    ) -> None:
        """Show some models.

        Args:
            rows: The models; a text among them is what was typed.
            at: Place of the one that is highlighted.
            available: Bytes of memory that a program can take, None where that isn't known.
            present: Directory of the model that is open.
        """
        self._rows, self._available, self._present = tuple(rows), available, present
        self.lay(len(rows), at)

    def head(self, width: int) -> Row:
        columns = fitting(width - 3)
        name = pad("  name", width - 1 - sum(WIDTHS[each] for each in columns))
        return [Segment(" " + name + self._line({each: each for each in columns}), self.ink("muted"))]

    def row(self, place: int, width: int) -> Row:
        model, columns = self._rows[place], fitting(width - 2)
        if isinstance(model, str):
            return [
                Segment(
                    truncate(f"⏎ open {quoted(visible(model))} as a path or hub id", width),
                    self.ink("accent"),
                )
            ]
        room = width - 2 - sum(WIDTHS[each] for each in columns)
        shown = cells(model, self._available)
        ink = self.rich_style if model.spec else self.ink("muted" if place == self.highlighted else "faint")
        return [
            Segment("▶ " if model.path == self._present else "  ", self.ink("accent")),
            Segment(pad(_name(model, room), room), ink),
            Segment(self._line({each: shown[each] for each in columns}), ink),
        ]

    def _line(self, columns: dict[str, str]) -> str:
        return "".join(
            "  " + pad(text, WIDTHS[name] - 2, right=name not in ("family", "fits"))
            for name, text in columns.items()
        )


def _name(model: DiskModel, room: int) -> str:
    """Its name, without the owner where that leaves no room for what tells it from others."""
    name = visible(model.name)
    return name if cell_len(name) <= room else name.rpartition("/")[2]


class ChosenModel(Canvas):
    """What is known of a model before it is loaded, and why it can't be."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._facts: tuple[tuple[str, str], ...] = ()

    def tell(self, chosen: DiskModel | str | None, available: int | None) -> None:
        """Show the facts of what is highlighted.

        Args:
            chosen: A model, or what was typed, or nothing.
            available: Bytes of memory that a program can take, None where that isn't known.
        """
        if isinstance(chosen, str):
            self._facts = (("opens", f"{quoted(chosen)}, {TYPED}"),)
        else:
            self._facts = tuple(facts(chosen, available)) if chosen else ()
        self.redraw()

    def draw(self, width: int, height: int) -> list[Row]:
        return fact_rows(self._facts, width, self.ink("muted"), self.rich_style)[:height]
