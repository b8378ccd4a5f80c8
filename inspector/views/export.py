"""Exporting: the dialog that asks what to make of the session on show, and the answer once it is written."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar

from msgspec import Struct
from textual import on
from textual.containers import VerticalGroup
from textual.widget import Widget
from textual.widgets import Label

from engine.errors import EngineError
from engine.files import replacing, shorter
from inspector.display import visible
from inspector.documents.parts import ExportPart
from inspector.export.documents import FORMATS, alone
from inspector.export.recording import Recording, line, snapshot, viewed
from inspector.keys import TABS_OF, key_for
from inspector.lessons.catalogue import Listed, of_recording
from inspector.main.dialogs.field import PathDialog, directory_hint
from inspector.main.tool import ToolActions, found
from inspector.scales import size
from inspector.version import program
from inspector.widgets.actions import ActionTable, KeyLine, dialog_table, fields, note, taking
from inspector.widgets.dialog import Remark
from inspector.widgets.fields import Choice, Ticks

INSIDE, EXAMPLES = "3", 3
"""The tab whose views are named if none was opened, and how many of them."""
PICTURE = "svg"
LESSON = "lesson"
"""The web page of a lesson whose recording is on show."""


class Exportable(Struct, frozen=True):
    """One kind of document."""

    name: str
    """Also the extension of its files, except for a lesson's page."""
    label: str
    """Its name in the dialog."""
    purpose: str
    """Its content, as a phrase."""
    evidence: bool = False
    """True if it can include views that were opened."""


KINDS = (
    Exportable("html", "web page", "one page to share: every token with its candidates, branches and charts", True),
    Exportable("md", "Markdown", "a report: the text, its figures, surprises, branches and steps", True),
    Exportable("csv", "CSV", "the tokens of the path as a table, one a row"),
    Exportable("txt", "plain text", "the text, and under it what it was made with if not by the model alone"),
    Exportable(PICTURE, "screenshot", "the screen as it stands, as SVG"),
    Exportable(LESSON, "lesson's page",
               "the whole lesson as a page that asks, shows what was recorded, and needs no program"),
)  # fmt: skip


class ExportActions(ToolActions):
    """Makes a document of the session on show."""

    kind: str = "html"
    """Name of the kind that was made last."""
    without: frozenset[str] = frozenset()
    """Names of the views that were left out the last time."""

    def open(self) -> None:
        """Ask what to make, and where to put it."""
        try:
            title, looked = line(Recording(self.timeline)).title, viewed(self.timeline, self._parts)
        except EngineError as error:
            self.host.answer(visible(str(error)))
            return
        self.host.open(ExportDialog(self, stem(title), looked), self._write)

    @property
    def _parts(self) -> list[ExportPart]:
        return [part for tool in self.host.tools for part in map(found, tool.exports)]

    @property
    def lesson(self) -> Listed | None:
        """The lesson whose recording is on show; None for any other session."""
        playback = self.host.playback
        path = playback.path if playback is not None and self.timeline.recorded else None
        return of_recording(path) if path is not None else None

    @property
    def nothing(self) -> str:
        """The sentence of the dialog if no view was opened."""
        openers = [
            f"{key_for(tool.opener)} {part.name}"
            for tool in self.host.tools
            for part in map(found, tool.exports[:1])
            if part.exhibits is not None and part.looked and self.host.has(tool.opener)
            if TABS_OF.get(tool.opener) == INSIDE
        ]
        views = f"{', '.join(openers[:EXAMPLES])} and others."
        return f"None yet. Open one at a token to include it: {views}"

    def _write(self, place: tuple[Path, bool] | None) -> None:
        """Make the document and write it; in a thread, except for a screenshot."""
        if place is None:
            return
        try:
            recording = snapshot(
                self.timeline, self.controller.setup.settings, self.controller.setup.load, program()
            )
            if self.kind == PICTURE:
                self.host.screenshot(
                    recording.heading,
                    lambda svg: self._answer(_written(*place, lambda: alone(svg, recording.made))),
                )
                return
            recording.parts = [part for part in self._parts if part.name not in self.without]
            make = self._lesson_page() if self.kind == LESSON else partial(FORMATS[self.kind], recording)
        except EngineError as error:  # the session has changed under the dialog
            self._answer(error)
            return
        self.host.answer(f"Writing {visible(str(place[0]))}")
        self.host.in_background(lambda: _written(*place, make), self._answer)

    def _lesson_page(self) -> Callable[[], str]:
        from inspector.export.lesson_page import page  # imports all that plays a lesson

        if (listed := self.lesson) is None:
            raise EngineError("The lesson is no longer on show.", "Open its recording again.")
        return partial(page, listed.lesson, listed.trace, self._parts)

    def _answer(self, written: str | EngineError) -> None:
        failed = isinstance(written, EngineError)
        self.host.answer("" if failed else str(written))
        if failed:
            self.host.announce(visible(str(written)), "Not exported", "error")


def _written(path: Path, force: bool, make: Callable[[], str]) -> str | EngineError:
    """Make a document and write it; returns the answer, printable, or the error."""
    try:
        raw = make().encode()
        with replacing(path, force) as file:
            file.write(raw)
    except EngineError as error:
        return error
    path = path.absolute()
    return f"Exported {visible(path.name)}, {size(len(raw))}, to {visible(shorter(path.parent))}"


class ExportDialog(PathDialog[tuple[Path, bool]]):
    """Asks for a kind of document and a path. An existing file is replaced on the second request: returns the path,
    and whether to replace the file.

    Args:
        own: Provides the kind and the unticked views to begin with; both are set when the dialog applies.
        stem: The file name without extension.
        looked: Names of the views that were opened.
    """

    ACTIONS: ClassVar[ActionTable] = dialog_table(
        "In an export",
        *fields(),
        note("space", hint=lambda own: "tick" if isinstance(own.focused, Ticks) else "", worth=5),
        taking(),
        told=False,
    )
    HEADING: ClassVar[str] = "Export"
    APPLY: ClassVar[str] = "Export"
    FIELD: ClassVar[str] = "export-path"
    FIRST: ClassVar[str] = "#export-what"
    REMARK: ClassVar[str] = "#export-path-remark"

    def __init__(self, own: ExportActions, stem: str, looked: Sequence[str]) -> None:
        self._own, self._stem, self._looked = own, stem, looked
        self._kinds = [each for each in KINDS if each.name != LESSON or own.lesson is not None]
        self._kind = next((each for each in self._kinds if each.name == own.kind), self._kinds[0])
        """The chosen kind."""
        super().__init__(self._file_name, f"session.{self._end}", directory_hint())

    def body(self) -> Iterable[Widget]:
        field, remark = super().body()
        yield Label("what", classes="field-label", markup=False)
        labels = [each.label for each in self._kinds]
        yield Choice(labels, self._kinds.index(self._kind), id="export-what")
        yield Remark(self._kind.purpose, id="export-purpose")
        yield Label("file", classes="field-label", markup=False)
        yield field
        yield remark
        unticked = (place for place, name in enumerate(self._looked) if name in self._own.without)
        with VerticalGroup(id="export-evidence") as group:
            group.display = self._kind.evidence
            yield Label("include these views", classes="field-label", markup=False)
            if self._looked:
                yield Ticks(self._looked, unticked, id="export-ticks")
            else:
                yield Remark(self._own.nothing)

    def on_descendant_focus(self) -> None:
        """Show the keys of the field that has the focus."""
        self.query_one(KeyLine).show()

    @on(Choice.Changed, "#export-what")
    def _chosen(self, message: Choice.Changed) -> None:
        """Describe the kind; if the file name has the extension of a kind, change it to the new one's."""
        field, untouched = self.field, self.field.value == self._file_name
        self._kind = self._kinds[message.choice.chosen]
        self.query_one("#export-purpose", Remark).say(self._kind.purpose)
        self.query_one("#export-evidence").display = self._kind.evidence
        before, dot, end = field.value.rpartition(".")
        if untouched:
            field.value = self._file_name
        elif dot and any(end == each.name for each in self._kinds):
            field.value = f"{before}.{self._end}"

    def apply(self) -> None:
        """Ask for the document, unless something is wrong with the name."""
        if (place := self.destination()) is None:
            return
        unticked = (self._looked[place] for ticks in self.query(Ticks) for place in ticks.without)
        self._own.kind, self._own.without = self._kind.name, frozenset(unticked)
        self.dismiss(place)

    @property
    def _end(self) -> str:
        return "html" if self._kind.name == LESSON else self._kind.name

    @property
    def _file_name(self) -> str:
        """The file name, until another is typed."""
        return f"{self._stem}.{self._end}"


def stem(title: str) -> str:
    """A file name from the first words of a text, at most six: plain letters, digits and hyphens."""
    words = re.findall(r"[a-z0-9]+", title.lower())
    return "-".join(words[:6])[:48] or "session"
