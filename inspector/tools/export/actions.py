"""Exporting: what the key does, and the word on what came of it."""

from __future__ import annotations

from collections.abc import Callable

from textual import work

from engine.errors import EngineError
from inspector.display import visible
from inspector.main.acting import PanelScreen
from inspector.scales import size
from inspector.session.controller import Controller
from inspector.tools.export import FORMATS, Recording, figures
from inspector.tools.export.dialog import PICTURE, ExportDialog, Wanted, stem
from inspector.tools.export.place import write
from inspector.tools.export.recording import line, snapshot
from inspector.tools.export.svg import alone
from inspector.version import version


class Exporting(PanelScreen):
    """Makes a document of what is on show."""

    def __init__(self, controller: Controller) -> None:
        super().__init__(controller)
        self._exported = "html"
        """The kind that was made last."""

    def action_export(self) -> None:
        """Ask what to make, and where to put it."""
        try:
            told = line(Recording(self.controller.timeline))
        except EngineError as error:
            self.answer(visible(str(error)))
            return
        self.app.push_screen(ExportDialog(self._exported, stem(figures.title(told))), self._export)

    def _export(self, wanted: Wanted | None) -> None:
        if wanted is None:
            return
        self._exported = wanted.name
        if wanted.name == PICTURE:
            self.call_after_refresh(self._picture, wanted)  # without the dialog
            return
        controller = self.controller
        recording = snapshot(
            controller.timeline, controller.settings, controller.load, f"mlx-inspector {version()}"
        )
        self.answer(f"Writing {visible(str(wanted.path))}")
        self._document(wanted, recording)

    @work(thread=True)
    def _document(self, wanted: Wanted, recording: Recording) -> None:
        """Make it beside the screen: that of a long session takes seconds."""
        told = _written(wanted, lambda: FORMATS[wanted.name].make(recording))
        self.app.call_from_thread(self._told, *told)

    def _picture(self, wanted: Wanted) -> None:
        title = figures.title(line(Recording(self.controller.timeline)))
        self._told(*_written(wanted, lambda: alone(self.app.export_screenshot(title=title))))

    def _told(self, text: str, failed: bool) -> None:
        if failed:
            self.answer()
            self.notify(text, title="Not exported", severity="error", timeout=8, markup=False)
        else:
            self.answer(text)


def _written(wanted: Wanted, make: Callable[[], str]) -> tuple[str, bool]:
    """Make a document and write it; returns what to tell, printable, and whether it failed."""
    try:
        written = write(wanted.path, make(), wanted.force)
    except EngineError as error:
        return visible(str(error)), True
    return f"Exported {size(written)} to {visible(str(wanted.path.absolute()))}", False
