"""The dialog that asks for a kind of document and for its file."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import ClassVar

from msgspec import Struct
from textual import on
from textual.containers import VerticalGroup
from textual.widget import Widget
from textual.widgets import Input, Label

from engine.errors import PathError
from inspector.display import visible
from inspector.main.dialogs.destination import Destination, directory_hint
from inspector.tools.export.documents import FORMATS, Exportable
from inspector.widgets.actions import ActionTable, KeyLine, dialog_table, fields, note, taking
from inspector.widgets.dialog import Dialog, Remark
from inspector.widgets.fields import Choice, SafeInput, Ticks

PICTURE = "svg"
LESSON = "lesson"
"""The web page of a lesson whose recording is on show."""


class Wanted(Struct, frozen=True):
    """The request for a document."""

    name: str
    """Name of a format."""
    path: Path
    force: bool
    """True if an existing file is to be replaced: the dialog warned of it."""
    without: frozenset[str] = frozenset()
    """Names of views that are left out."""


def kinds() -> list[Exportable]:
    """All kinds of documents, a lesson's page last."""
    page = "the whole lesson as a page that asks, shows what was recorded, and needs no program"
    return [
        *FORMATS.values(),
        Exportable(PICTURE, "picture", "the screen as it stands, as SVG"),
        Exportable(LESSON, "lesson's page", page),
    ]


class ExportDialog(Dialog[Wanted]):
    """Asks for a kind of document and a path; an existing file is replaced on the second request.

    Args:
        name: The kind that is chosen at first.
        stem: The file's name without its end.
        lesson: Whether a lesson's recording is on show.
        looked: Names of the views that were opened.
        without: Those of them that are not ticked.
        nothing: The sentence if there are none.
    """

    ACTIONS: ClassVar[ActionTable] = dialog_table(
        "In an export",
        *fields(),
        note("space", hint=lambda own: own.tick_word, worth=5),
        taking(),
        told=False,
    )
    HEADING: ClassVar[str] = "Export"
    APPLY: ClassVar[str] = "Export"

    def __init__(
        self,
        name: str,
        stem: str,
        lesson: bool = False,
        looked: Sequence[str] = (),
        without: Collection[str] = (),
        nothing: str = "",
    ) -> None:
        super().__init__()
        self._looked, self._without, self._nothing = looked, without, nothing
        self._stem = stem
        self._kinds = [each for each in kinds() if lesson or each.name != LESSON]
        self._kind = next((each for each in self._kinds if each.name == name), self._kinds[0])
        """The chosen one."""
        self._destination = Destination("Export")

    def body(self) -> Iterable[Widget]:
        yield Label("what", classes="field-label", markup=False)
        labels = [each.label for each in self._kinds]
        yield Choice(labels, self._kinds.index(self._kind), id="export-what")
        yield Remark(self._kind.purpose, id="export-purpose")
        unticked = (place for place, name in enumerate(self._looked) if name in self._without)
        with VerticalGroup(id="export-evidence") as group:
            group.display = self._kind.evidence
            yield Label("views that were opened", classes="field-label", markup=False)
            yield Ticks(self._looked, unticked, id="export-ticks") if self._looked else Remark(self._nothing)
        yield Label("file", classes="field-label", markup=False)
        yield SafeInput(self._file_name, f"session.{_end(self._kind.name)}", id="export-path")
        yield Remark(visible(directory_hint()), id="export-remark")

    def on_mount(self) -> None:
        """Begin in the choice."""
        self.query_one("#export-what", Choice).focus()

    def on_descendant_focus(self) -> None:
        """The line of keys has those of the field."""
        self.query_one(KeyLine).show()

    @on(Choice.Changed, "#export-what")
    def _chosen(self, message: Choice.Changed) -> None:
        """Describe the kind, and let the file's name end so, if it ended in a name of these before."""
        field = self.query_one("#export-path", SafeInput)
        untouched = field.value == self._file_name
        self._kind = self._kinds[message.choice.chosen]
        self.query_one("#export-purpose", Remark).say(self._kind.purpose)
        self.query_one("#export-evidence").display = self._kind.evidence
        before, dot, end = field.value.rpartition(".")
        if untouched:
            field.value = self._file_name
        elif dot and any(end == each.name for each in self._kinds):
            field.value = f"{before}.{_end(self._kind.name)}"

    @on(Input.Changed, "#export-path")
    def _typed(self) -> None:
        self.query_one("#export-remark", Remark).say(visible(directory_hint()))

    def apply(self) -> None:
        """Ask for the document, unless something is wrong with the name."""
        try:
            path, force = self._destination.check(self.query_one("#export-path", SafeInput).value.strip())
        except PathError as error:
            self.query_one("#export-remark", Remark).say(visible(str(error)), wrong=True)
        else:
            unticked = {self._looked[place] for ticks in self.query(Ticks) for place in ticks.without}
            self.dismiss(Wanted(self._kind.name, path, force, frozenset(unticked)))

    @property
    def _file_name(self) -> str:
        """The file's name, until another one is typed."""
        return f"{self._stem}.{_end(self._kind.name)}"

    @property
    def tick_word(self) -> str:
        """The word for the key that ticks a view."""
        return "tick" if isinstance(self.focused, Ticks) else ""


def _end(name: str) -> str:
    """The end of a file's name."""
    return "html" if name == LESSON else name


def stem(title: str) -> str:
    """A file's name from how a text begins: plain letters and hyphens, six words at most."""
    words = re.findall(r"[a-z0-9]+", title.lower())
    return "-".join(words[:6])[:48] or "session"
