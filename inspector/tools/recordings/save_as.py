"""The dialog that saves a session, or the shown part of a recording, to a file that the user names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from threading import Event
from typing import ClassVar

from textual import on, work
from textual.widget import Widget
from textual.widgets import Input, Label

from engine.errors import EngineError, PathError
from engine.frozen import frozen
from engine.paths import shorter
from engine.trace import Entry, placed, save_as
from inspector.display import visible
from inspector.main.dialogs.destination import Destination
from inspector.scales import size
from inspector.widgets.choice import Choice
from inspector.widgets.dialog import Dialog, Remark
from inspector.widgets.safety import SafeInput

LOGITS = ("without logits", "with those that are kept")
LOGITS_HELP = (
    "With a step's logits a replay tries other settings, shows raw logits and searches the whole vocabulary"
)
HELP = "A name that ends in .gz or .zst compresses it. `inspector replay FILE` shows it again, here or elsewhere."
_REPORT_EVERY = 500
"""Entries between two words on how far it is."""


@frozen
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
        entries: Returns what to save.
        proposal: The initial path in the field.
        program: Name and version of what writes.
        read_logits: Has the kept rows of logits added to the entries, then `logits_read` called; None where none are.
        row: Bytes of one row at most.
    """

    HEADING: ClassVar[str] = "Save as"
    APPLY: ClassVar[str] = "Save"

    def __init__(
        self,
        entries: Callable[[], Sequence[Entry]],
        proposal: str,
        program: str,
        read_logits: Callable[[], None] | None = None,
        row: int = 0,
    ) -> None:
        super().__init__()
        self.entries, self.proposal, self.program = entries, proposal, program
        self._read_logits, self._row = read_logits, row
        self._awaiting: tuple[Path, bool] | None = None
        """Where to write once the rows are read, and whether a file there may be replaced."""
        self._destination = Destination("Save")
        self._stop: Event | None = None
        """Set to give up what is being written; None while nothing is."""

    def body(self) -> Iterable[Widget]:
        yield Label("file", classes="field-label", markup=False)
        yield SafeInput(self.proposal, "session.jsonl.gz", id="save-path")
        if self._read_logits is not None:
            yield Label("logits", classes="field-label", markup=False)
            yield Choice(LOGITS, id="save-logits")
        yield Remark(HELP, id="save-remark")

    def on_mount(self) -> None:
        """Begin in the field."""
        self.query_one("#save-path", SafeInput).focus()

    def _say(self, text: str, wrong: bool = False) -> None:
        self.query_one("#save-remark", Remark).say(visible(text), wrong)

    @on(Input.Changed, "#save-path")
    def _typed(self) -> None:
        if self._stop is None and self._awaiting is None:
            self._say(HELP)

    @on(Choice.Changed, "#save-logits")
    def _logits_chosen(self) -> None:
        self._say(f"{LOGITS_HELP}: up to {size(self._row)} each." if self._with_logits else HELP)

    @property
    def _with_logits(self) -> bool:
        return self._read_logits is not None and self.query_one("#save-logits", Choice).chosen == 1

    def let_go(self) -> None:
        """What is half written goes with the dialog, also where the program ends."""
        if self._stop is not None:
            self._stop.set()

    def apply(self) -> None:
        """Write, unless something is wrong with the name."""
        name = self.query_one("#save-path", SafeInput).value.strip()
        if self._stop is not None or self._awaiting is not None:
            return
        try:
            path, force = self._destination.check(name)
        except PathError as error:
            self._say(str(error), wrong=True)
            return
        if self._with_logits and self._read_logits is not None:
            self._awaiting = path, force
            self._say("Reading the kept logits …")
            self._read_logits()
        else:
            self._begin(path, force, self.entries())

    def logits_read(self, failure: str = "") -> None:
        """The rows are among the entries, or why they are not: write, or say it."""
        if self._awaiting is None:
            return
        (path, force), self._awaiting = self._awaiting, None
        if failure:
            self._say(failure, wrong=True)
        else:
            self._begin(path, force, placed(self.entries()))

    def _begin(self, path: Path, force: bool, entries: Sequence[Entry]) -> None:
        self._stop = Event()
        self._write(path, force, entries, self._stop)

    @work(thread=True)
    def _write(self, path: Path, force: bool, entries: Sequence[Entry], stop: Event) -> None:
        try:
            written = save_as(path, self._counted(entries, stop), self.program, force)
        except _Stopped:
            return
        except EngineError as error:
            self.from_thread(self._failed, str(error))
        else:
            self.from_thread(self.dismiss, Saved(path, written))

    def _counted(self, entries: Sequence[Entry], stop: Event) -> Iterator[Entry]:
        whole = len(entries)
        for number in range(whole):
            if stop.is_set():
                raise _Stopped
            if number % _REPORT_EVERY == _REPORT_EVERY - 1:
                self.from_thread(self._say, f"Writing: {number / whole:.0%}. Esc gives it up.")
            yield entries[number]

    def _failed(self, why: str) -> None:
        self._stop = None
        self._say(why, wrong=True)


def saved_sentence(saved: Saved) -> str:
    """A sentence on a file that was written; printable."""
    return f"Saved {size(saved.size)} to {visible(shorter(saved.path))}"
