"""Exporting as a tool: the key that makes a document of the session on show, and the answer once it is written."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import EngineError
from engine.files import replacing, shorter
from inspector.display import visible
from inspector.documents.parts import ExportPart, exhibits_of
from inspector.keys import TABS_OF, key_for
from inspector.lessons.catalogue import of_recording
from inspector.main.tool import Tool, ToolActions, found
from inspector.scales import size
from inspector.version import program
from inspector.widgets.actions import Action, Needs

if TYPE_CHECKING:
    from inspector.main.screen import MainScreen
    from inspector.tools.export.dialog import Wanted

INSIDE, EXAMPLES = "3", 3
"""The tab, and how many of its views are named while none was opened."""
Written = tuple[str, bool]
"""An answer, printable, and whether writing failed."""


class ExportActions(ToolActions):
    """Makes a document of the session on show."""

    def __init__(self, host: MainScreen) -> None:
        super().__init__(host)
        self._exported = "html"
        """The kind that was made last."""
        self._without: frozenset[str] = frozenset()
        """Names of the views that were left out the last time."""

    def open(self) -> None:
        """Ask what to make, and where to put it."""
        from inspector.tools.export.dialog import ExportDialog, stem
        from inspector.tools.export.recording import Recording, exported, line

        try:
            shown = line(Recording(self.timeline))
            of = exported(shown)
        except EngineError as error:
            self.host.answer(visible(str(error)))
            return
        looked = [part.name for part in self._parts if any(exhibits_of([part], of))]
        openers = [
            f"{key_for(tool.opener)} {part.name}"
            for tool in self.host.tools
            for part in map(found, tool.exports[:1])
            if part.exhibits is not None and part.looked and self.host.has(tool.opener)
            if TABS_OF.get(tool.opener) == INSIDE
        ]
        views = f"{', '.join(openers[:EXAMPLES])} and others."
        nothing = f"Nothing yet: what you look at in a token goes along, with {views}"
        lesson = self._lesson is not None
        self.host.open(
            ExportDialog(self._exported, stem(shown.title), lesson, looked, self._without, nothing),
            self._left,
        )

    @property
    def _parts(self) -> list[ExportPart]:
        return [part for tool in self.host.tools for part in map(found, tool.exports)]

    @property
    def _lesson(self) -> Path | None:
        """The lesson's recording that is on show; None for any other session."""
        playback = self.host.playback
        path = playback.path if playback is not None and self.timeline.recorded else None
        return path if path is not None and of_recording(path) is not None else None

    def _left(self, wanted: Wanted | None) -> None:
        if wanted is None:
            return
        self._exported, self._without = wanted.name, wanted.without
        try:
            self._make(wanted)
        except EngineError as error:  # the session has changed under the dialog
            self._answer((visible(str(error)), True))

    def _make(self, wanted: Wanted) -> None:
        from inspector.tools.export.dialog import LESSON, PICTURE
        from inspector.tools.export.documents import FORMATS, alone
        from inspector.tools.export.lesson_page import page
        from inspector.tools.export.recording import Recording, line, snapshot

        if wanted.name == PICTURE:
            shown = line(Recording(self.timeline))
            heading, made = shown.heading, shown.made
            self.host.screenshot(
                heading, lambda svg: self._answer(_written(wanted, lambda: alone(svg, made)))
            )
            return
        make: Callable[[], str]
        if wanted.name == LESSON:
            if (path := self._lesson) is None or (listed := of_recording(path)) is None:
                raise EngineError("The lesson is no longer on show.", "Open its recording again.")
            make = partial(page, listed.lesson, path, self._parts)
        else:
            setup = self.controller.setup
            recording = snapshot(self.timeline, setup.settings, setup.load, program())
            recording.parts = [part for part in self._parts if part.name not in wanted.without]
            make = partial(FORMATS[wanted.name].make, recording)
        self.host.answer(f"Writing {visible(str(wanted.path))}")
        self.host.in_background(lambda: _written(wanted, make), self._answer)

    def _answer(self, written: Written) -> None:
        text, failed = written
        self.host.answer("" if failed else text)
        if failed:
            self.host.announce(text, "Not exported", "error")


def _written(wanted: Wanted, make: Callable[[], str]) -> Written:
    """Make a document and write it."""
    try:
        raw = make().encode()
        with replacing(wanted.path, wanted.force) as file:
            file.write(raw)
    except EngineError as error:
        return visible(str(error)), True
    path = wanted.path.absolute()
    return f"Exported {visible(path.name)}, {size(len(raw))}, to {visible(shorter(path.parent))}", False


EXPORT = Tool(
    "export",
    "Export",
    ExportActions,
    actions=(
        Action("export", "Export",
            "Export the session: a web page to share, Markdown, CSV, plain text, or a picture of the screen. The "
            "first two include the views that you opened and ticked.",
            ExportActions.open, Needs.DISTRIBUTION,
            synonyms="share, html page, report, markdown, csv, svg, publish, send to a colleague",
            view="export…"),
    ),
)  # fmt: skip
