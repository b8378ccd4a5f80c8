"""The dialog that saves a session, or the shown part of a recording, to a file that the user names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import ClassVar

from textual import on, work
from textual.widget import Widget
from textual.widgets import Input, Label

from engine.errors import EngineError, PathError
from engine.paths import shorter
from engine.trace import Entry, save_as
from inspector.display import visible
from inspector.main.dialogs.destination import Destination
from inspector.scales import size
from inspector.widgets.dialog import Dialog, Remark
from inspector.widgets.safety import SafeInput

HELP = "A name that ends in .gz or .zst compresses it. `inspector replay FILE` shows it again, here or elsewhere."
_REPORT_EVERY = 500
"""Entries between two words on how far it is."""


@dataclass(frozen=True, slots=True)
class Saved:
    """What was written."""

    path: Path
    size: int
    """Bytes."""


class _Stopped(Exception):
    """The user gave it up."""


class SaveAsDialog(Dialog[Saved]):
    """Asks for a path and writes there; an existing file is replaced on the second request.

    Args:
        entries: What to save.
        proposal: The initial path in the field.
        program: Name and version of what writes.
    """

    HEADING: ClassVar[str] = "Save as"
    APPLY: ClassVar[str] = "Save"

    def __init__(self, entries: Sequence[Entry], proposal: str, program: str) -> None:
        super().__init__()
        self.entries, self.proposal, self.program = entries, proposal, program
        self._destination = Destination("Save")
        self._stop: Event | None = None
        """Set to give up what is being written; None while nothing is."""

    def body(self) -> Iterable[Widget]:
        yield Label("file", classes="field-label", markup=False)
        yield SafeInput(self.proposal, "session.jsonl.gz", id="save-path")
        yield Remark(HELP, id="save-remark")

    def on_mount(self) -> None:
        """Begin in the field."""
        self.query_one("#save-path", SafeInput).focus()

    def _say(self, text: str, wrong: bool = False) -> None:
        self.query_one("#save-remark", Remark).say(visible(text), wrong)

    @on(Input.Changed, "#save-path")
    def _typed(self) -> None:
        if self._stop is None:
            self._say(HELP)

    @on(Input.Submitted, "#save-path")
    def _submitted(self) -> None:
        self.action_apply()

    def let_go(self) -> None:
        """What is half written goes with the dialog, also where the program ends."""
        if self._stop is not None:
            self._stop.set()

    def action_apply(self) -> None:
        """Write, unless something is wrong with the name."""
        name = self.query_one("#save-path", SafeInput).value.strip()
        if self._stop is not None:
            return
        try:
            path, force = self._destination.check(name)
        except PathError as error:
            self._say(str(error), wrong=True)
            return
        self._stop = Event()
        self._write(path, force, self._stop)

    @work(thread=True)
    def _write(self, path: Path, force: bool, stop: Event) -> None:
        try:
            written = save_as(path, self._counted(stop), self.program, force)
        except _Stopped:
            return
        except EngineError as error:
            self.from_thread(self._failed, str(error))
        else:
            self.from_thread(self.dismiss, Saved(path, written))

    def _counted(self, stop: Event) -> Iterator[Entry]:
        whole = len(self.entries)
        for number in range(whole):
            if stop.is_set():
                raise _Stopped
            if number % _REPORT_EVERY == _REPORT_EVERY - 1:
                self.from_thread(self._say, f"Writing: {number / whole:.0%}. Esc gives it up.")
            yield self.entries[number]

    def _failed(self, why: str) -> None:
        self._stop = None
        self._say(why, wrong=True)


def saved_sentence(saved: Saved) -> str:
    """A sentence on a file that was written; printable."""
    return f"Saved {size(saved.size)} to {visible(shorter(saved.path))}"
