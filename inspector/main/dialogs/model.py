"""The dialog that opens another model: one of those on the disk, filtered by typing, or one that was typed itself."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from threading import Event
from typing import Any, ClassVar

from msgspec import Struct
from rich.cells import cell_len
from rich.segment import Segment
from textual import on, work
from textual.widget import Widget
from textual.widgets import Input

from engine.errors import EngineError
from engine.memory import Room, memory_for_models, memory_of
from engine.models_on_disk.models import DiskModel, check_typed
from engine.settings import LoadSettings, for_model
from inspector.display import pad, quoted, truncate, visible
from inspector.documents.disk_models import cells, facts, matches
from inspector.main.dialogs import MODEL_KEYS, Downloads
from inspector.scales import FREE, size
from inspector.widgets.actions import ActionTable
from inspector.widgets.canvas import Canvas, Row
from inspector.widgets.dialog import Remark
from inspector.widgets.fields import SafeInput
from inspector.widgets.lists import PickDialog, PickList
from inspector.widgets.rows import columns_that_fit

NOTHING = "No model was named. A directory with config.json and weights, a hub id, or pocket."
"""The remark if no model is highlighted and none was typed."""
_PLACE = re.compile(r"[~/.].*|[^/\s]+/[^/\s]+")
"""The form of a path or a hub id: it is opened as it is typed, unless the list has a model of just that name."""
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
"""The form of a hub id: if the model isn't on the disk, it is downloaded before it is opened."""
_LOOK = 0.2
"""Seconds between two updates of a download's progress."""
_BATCH = 0.1
"""Seconds between two updates of the list while it is read."""


class Offer(Struct, frozen=True):
    """A row of a subclass's own, which is no model on the disk."""

    name: str
    """Not yet printable."""
    facts: tuple[tuple[str, str], ...]
    """Names and sentences, as for a model."""
    load: LoadSettings | None
    """The settings that the model is loaded with; None if something has to be typed first."""
    bits: int | None = None
    """Bits to quantize the model to while it is loaded; None for those of its files."""


class ModelDialog(PickDialog[Any]):
    """Asks for a model, and returns how to load it; other load settings stay as they were.

    Args:
        load: How the present model was loaded.
        present: Directory of the open model; None without one.
        recent: Returns the directories of the models used last; called in a thread.
        downloads: Downloads models; continues when this is left.
        room: Memory available to the model, as MLX reported it; None if it hasn't.
        name: Initial text of the field.
    """

    ACTIONS: ClassVar[ActionTable] = MODEL_KEYS
    HEADING: ClassVar[str] = "Open a model"
    APPLY: ClassVar[str] = "Open"
    FIRST: ClassVar[str] = "#model-name"
    WAYS: ClassVar[str] = "Type to filter by name, family or bits, or a directory or a hub id."

    def __init__(
        self,
        load: LoadSettings,
        present: Path | None,
        recent: Callable[[], Sequence[str]],
        downloads: Downloads,
        room: Room | None = None,
        name: str = "",
    ) -> None:
        super().__init__()
        self._begins = name
        self.load, self._present, self._recent, self._downloads = load, present, recent, downloads
        self._ended = downloads.ended
        """Number of downloads that had ended when the list was read."""
        self._models: list[DiskModel] = []
        self.choices: Sequence[DiskModel | Offer | str] = ()
        """Models, offers and, if it may name a model that isn't listed, the text that was typed."""
        self._room = room or Room(memory_for_models(), memory_of())
        self._stop = Event()
        self._read = False
        """True if the whole list was read."""

    def body(self) -> Iterable[Widget]:
        yield SafeInput(self._begins, "filter, directory or hub id", id="model-name")
        yield Remark(self.WAYS, id="model-remark")
        yield Remark(id="model-download")
        yield PickList(id="model-list")
        yield Canvas(id="model-chosen")

    def begin(self) -> None:
        """Show the download under way, if any, and start to read the list."""
        super().begin()
        self._show()
        self._follow()
        self.set_interval(_LOOK, self._follow)
        self._list_models()

    def let_go(self) -> None:
        """Stop the thread that reads the list."""
        self._stop.set()

    # ---- reading ------------------------------------------------------------------------------

    @work(thread=True)
    def _list_models(self) -> None:
        from engine.models_on_disk.models import listed  # imported only when it is needed

        found: list[DiskModel] = []
        told = time.monotonic()
        for model in listed(recent=self._recent(), stopped=self._stop.is_set):
            found.append(model)
            if time.monotonic() - told > _BATCH:
                self.from_thread(self._found, tuple(found), False)
                told = time.monotonic()
        if not self._stop.is_set():
            self.from_thread(self._found, tuple(found), True)

    def _found(self, models: Sequence[DiskModel], read: bool) -> None:
        """Show the models that were read, those that can be opened first."""
        self._models, self._read = sorted(models, key=lambda model: not model.spec), read
        self._show(stay=True)

    # ---- offers of a subclass ------------------------------------------------------------------

    def besides(self) -> Iterable[Offer]:
        """The offers for the typed text; they come before the models on the disk."""
        return ()

    def take(self, offer: Offer) -> None:
        """Take an offer."""
        raise NotImplementedError

    # ---- filtering ----------------------------------------------------------------------------

    @property
    def typed(self) -> str:
        return self.query_one("#model-name", SafeInput).value.strip()

    @on(Input.Changed, "#model-name")
    def _typed(self) -> None:
        self._show()

    def _show(self, stay: bool = False) -> None:
        """Show the rows that match the field.

        Args:
            stay: Whether to keep the highlighted row, if it is still listed.
        """
        name, chosen, highlighted = self.typed, self.picked, self.picks.highlighted
        words = name.casefold().split()
        offers = [each for each in self.besides() if all(word in each.name.casefold() for word in words)]
        models = [model for model in self._models if matches(model, name)]
        rows: list[DiskModel | Offer | str] = [*offers, *models]
        named = next((at for at, each in enumerate(rows) if getattr(each, "name", "") == name), None)
        at = named or 0
        if name and named is None:
            rows.insert(len(offers) if _PLACE.fullmatch(name) else len(rows), name)
        if stay and chosen in rows and (highlighted or not name):
            at = rows.index(chosen)
        self.put(rows, at)
        count = len(self._models)
        many = f"{len(models):,} of {count:,}" if name else f"{count:,}"
        memory = f", {size(free)} {FREE[self._room.of]}" if (free := self._room.free) else ""
        rest = f"{memory}." if self._read else ", reading on …"
        self.say(f"{many} {'model' if count == 1 else 'models'}{rest} {self.WAYS}")

    @on(PickList.RowHighlighted)
    def _tell(self) -> None:
        """Show the facts about the highlighted row."""
        match self.picked:
            case str() as name:
                about: Sequence[tuple[str, str]] = (("opens", f"{quoted(name)}, {TYPED}"),)
            case Offer() as offer:
                about = offer.facts
            case None:
                about = ()
            case model:
                about = tuple(facts(model, self._room))
        self.query_one("#model-chosen", Canvas).paint(lambda on, width, height: on.facts(about, width))

    # ---- downloading --------------------------------------------------------------------------

    def _follow(self) -> None:
        """Show the progress or the outcome of a download; list the models again after its end."""
        downloads, remark = self._downloads, self.query_one("#model-download", Remark)
        text = downloads.situation or downloads.outcome
        remark.display = bool(text)
        remark.say(text, wrong=not downloads.spec and downloads.failed)
        if downloads.ended != self._ended and self._read:
            self._ended, self._read = downloads.ended, False
            self._list_models()

    def _missing(self, chosen: DiskModel | str) -> str:
        """The hub id of a model that must be downloaded before it can be opened; empty if it needn't be."""
        if isinstance(chosen, DiskModel):
            return chosen.hub_id if chosen.downloads else ""
        hub = self._read and _HUB_ID.fullmatch(chosen) and not os.path.lexists(chosen)
        return chosen if hub and not os.path.isdir(os.path.dirname(chosen)) else ""

    def _download(self, spec: str) -> None:
        """Start the download of a model, or stop it."""
        downloads = self._downloads
        if not downloads.spec:
            downloads.start(spec)
        elif downloads.spec == spec:
            downloads.stop()
        else:
            self.say(f"{visible(downloads.spec)} is being downloaded: wait, or stop that first", wrong=True)
        self._follow()

    # ---- opening ------------------------------------------------------------------------------

    def apply(self) -> None:
        """Open the highlighted row, or download its model."""
        chosen: DiskModel | Offer | str | None = self.picked
        if chosen is None:
            self.say(NOTHING, wrong=True)
        elif isinstance(chosen, Offer):
            self.take(chosen)
        elif missing := self._missing(chosen):
            self._download(missing)
        elif isinstance(chosen, str):
            self._open(chosen)
        elif chosen.spec:
            self.dismiss(for_model(self.load, chosen.spec))
        else:
            self.say(visible(chosen.problem), wrong=True)

    def _open(self, name: str) -> None:
        """Open the model that was typed, unless it is a directory that can't be loaded."""
        try:
            check_typed(name)
        except EngineError as error:
            self.say(visible(str(error)), wrong=True)
        else:
            self.dismiss(for_model(self.load, name))

    # ---- drawing ------------------------------------------------------------------------------

    def head(self, width: int) -> Row:
        columns = columns_that_fit(WIDTHS, GIVES_WAY, width - 3 - NAME)
        name = pad("  name", width - 1 - sum(WIDTHS[each] for each in columns))
        return [Segment(" " + name + _line({each: each for each in columns}), self.picks.ink("muted"))]

    def row(self, place: int, width: int) -> Row:
        model = self.choices[place]
        columns = columns_that_fit(WIDTHS, GIVES_WAY, width - 2 - NAME)
        picks = self.picks
        if isinstance(model, str):
            words = f"⏎ open {quoted(visible(model))} as a path or hub id"
            return [Segment(truncate(words, width), picks.ink("accent"))]
        if isinstance(model, Offer):
            return [Segment(f"  {pad(visible(model.name), width - 2)}", picks.rich_style)]
        room = width - 2 - sum(WIDTHS[each] for each in columns)
        shown = cells(model, self._room.free)
        ink = (
            picks.rich_style if model.spec else picks.ink("muted" if place == picks.highlighted else "faint")
        )
        name = visible(model.name)
        if cell_len(name) > room:
            name = name.rpartition("/")[2]  # without the owner
        line = pad(name, room) + _line({each: shown[each] for each in columns})
        mark = "▶ " if model.path == self._present else "  "
        return [Segment(mark, picks.ink("accent")), Segment(line, ink)]


# ---- the list ------------------------------------------

WIDTHS = {"family": 14, "params": 8, "bits": 9, "size": 10, "context": 9, "KV/token": 10, "fits": 13}
"""Cells of the columns after the name, their left gap included."""
GIVES_WAY = ("KV/token", "context", "family", "params", "size", "bits")
"""The columns that are left out, in this order, if the name has no room."""
NAME = 24
"""Minimum cells of the name."""
TYPED = "a directory or a hub id; if there is no such directory, the hub's cache, then the hub"


def _line(columns: Mapping[str, str]) -> str:
    """The cells of a row after the name."""
    return "".join(
        "  " + pad(text, WIDTHS[name] - 2, right=name not in ("family", "fits"))
        for name, text in columns.items()
    )
