"""The dialogs of the main screen: prompt, model, facts, jump, help. This module has the tables of their keys, which are
needed before a dialog is imported, and the downloads, which continue when the model dialog is left.
"""

from __future__ import annotations

from functools import partial
from threading import Event
from typing import TYPE_CHECKING

from msgspec.structs import replace
from textual.worker import get_current_worker

from engine.errors import Cancelled, EngineError
from inspector.display import visible
from inspector.documents.disk_models import far
from inspector.keys import key_for
from inspector.main.tool import Host
from inspector.widgets.actions import (
    NEW_LINE,
    Action,
    applies,
    both,
    dialog_table,
    leaves,
    note,
    picking,
    taking,
)

if TYPE_CHECKING:
    from engine.model.download import DownloadProgress

PROMPT_KEYS = dialog_table(
    "While a prompt is typed",
    note("up down", "On the first or last line: go to the previous or next prompt. `alt+↑` `alt+↓` on any.",
         "other prompts", 5),
    Action("prompt.read_file", "From a file", "Take the text of a file; `→` completes its path.",
           lambda own: own.read_file(), hint="from a file", worth=2, priority=True),
    note("ctrl+a", "Select all of the text: typing replaces it.", "select all", 4),
    NEW_LINE,
    note("tab", hint="next field", worth=3),
    replace(applies("Start with it.", written="`⏎` or `{dialog.apply}`"), hint=""),
    note("enter", hint="start", worth=6),
    leaves("Leave; your text is kept."),
)  # fmt: skip
MODEL_KEYS = dialog_table(
    "While a model is chosen",
    note("", "Filter by name, family, bits or source: `qwen 4-bit`. A path or a hub id opens as typed.",
         written="letters"),
    *picking("Go through the list, `pgup` `pgdn` by pages; its facts are below.", "model", 6, pages=""),
    taking("Open it. A hub model that is missing or incomplete on the disk is downloaded first, while the session "
        "continues: `⏎` again stops the download, and later resumes it.", "open"),
)  # fmt: skip
HELP_KEYS = dialog_table(
    "In the help",
    *both(("help.page_before", "help.next_page"), ("Previous page", "Next page"), "",
          lambda own, by: own.other_page(by), hint="other page", worth=6, priority=True),
    note("up down", hint="scroll", worth=5),
    note("enter", hint="open", worth=4),
    Action("help.filter", "Filter the keys", run=lambda own: own.filter_keys(), hint="filter", worth=4),
    Action("help.pages", "All pages", run=lambda own: own.show_topics()),
    Action("help.close", "Close", run=lambda own: own.leave()),
    told=False,
)  # fmt: skip


class Downloads:
    """Downloads models, one at a time.

    Args:
        host: Runs the download in a thread, and shows the notice at its end.
    """

    def __init__(self, host: Host) -> None:
        self._host, self._stop = host, Event()
        self.spec = ""
        """The model that is being downloaded; empty for none."""
        self.progress: DownloadProgress | None = None
        self.ended = 0
        """Number of downloads that have ended."""
        self.outcome = ""
        """The outcome of the last download, in a sentence; printable."""
        self.failed = False

    def start(self, spec: str) -> None:
        """Download the missing files of a model; there must be no other download under way."""
        stop = self._stop = Event()
        self.spec, self.progress, self.outcome = spec, None, ""

        def work() -> EngineError | None:
            from engine.model.download import download  # imported only when it is needed

            worker = get_current_worker()  # the program's end cancels it
            try:
                download(
                    spec, partial(setattr, self, "progress"), lambda: stop.is_set() or worker.is_cancelled
                )
            except EngineError as error:
                return error
            return None

        self._host.in_background(work, self._over)

    def stop(self) -> None:
        """Stop the download; the files so far are kept."""
        self._stop.set()

    def _over(self, error: EngineError | None) -> None:
        name = visible(self.spec)
        self.spec, self.progress, self.ended = "", None, self.ended + 1
        self.failed = error is not None
        if isinstance(error, Cancelled):
            self.outcome = f"The download of {name} was stopped; its files are kept, ⏎ resumes it"
            return
        there = f"{name} is on the disk now"
        self.outcome = f"{there}: ⏎ opens it" if error is None else visible(str(error))
        if not self._host.is_active:
            return  # the open dialog shows it
        if error is not None:
            self._host.announce(self.outcome, "Download", "error")
        else:
            self._host.announce(f"{there}. {key_for('open')} opens it.", "Download", "information")

    @property
    def situation(self) -> str:
        """The progress in a sentence; empty if nothing is being downloaded."""
        here = f"Downloading {visible(self.spec)}: {far(self.progress)}"
        return f"{here}. ⏎ on it stops it, esc lets it continue" if self.spec else ""
