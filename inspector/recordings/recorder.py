"""The running session as it is kept: all entries in memory, and in a file as they happen.

A file of a session is begun with its first prompt, and written by a thread of its own, so that no frame waits for a
disk. Whatever goes wrong with it is reported once and the session goes on: it can be saved elsewhere from memory.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from engine.errors import RecordingError
from engine.protocol import (
    BeamStep,
    Configure,
    Deleted,
    Ended,
    Explained,
    Marked,
    ModelFacts,
    PromptOpened,
    Record,
    Step,
    WhatIfAnswered,
)
from engine.recording import Entry, Journal, RecordingChanged, save_as, worth_keeping
from engine.settings import LoadSettings, Settings
from inspector.keys import key_for
from inspector.recordings import sessions

_WORTH_A_FILE = (Step, BeamStep, Marked, Deleted)
"""A session without any of these is a prompt and nothing else: it leaves no file behind."""
_ALL_KEPT = (Step, Ended, Explained, WhatIfAnswered)
"""They come with every token, or with every value that is tried, and all are kept."""
PATIENCE = 2.0
"""Seconds that leaving waits for a file which is being taken over."""


class Recorder:
    """Keeps one session.

    Args:
        directory: Where its file is made; None keeps it in memory alone.
        program: Returns name and version of what writes; asked when something is written.
        load: Returns how the present model was loaded.
        settings: Returns the sampler's settings in force.
        report: Shows the user that something can't be written.
    """

    def __init__(
        self,
        directory: Path | None,
        program: Callable[[], str],
        load: Callable[[], LoadSettings],
        settings: Callable[[], Settings],
        report: Callable[[str], None],
    ) -> None:
        self.entries: list[Entry] = []
        """Everything so far, in order."""
        self.program = program
        self.journal: Journal | None = None
        self.saved: Path | None = None
        """The file of the session that was closed last, None where none was left behind."""
        self.notice = ""
        """Why that is another file than the session had until then; empty if it is not."""
        self.holding = False
        """While a recording is replayed nothing is kept."""
        self.directory, self._report = directory, report
        self._load, self._settings = load, settings
        self._in_force: Settings | None = None
        """The settings kept last for the present model."""
        self._began = time.monotonic()
        self._made = self._worth = False
        self._resuming: threading.Thread | None = None
        self.resumed: Journal | RecordingError | None = None
        """A file that is to be appended to, once it was read through: nothing is to wait for the next record."""
        self._known = 0
        """How many entries that file holds."""
        self._taking: Path | None = None
        """That file, until it is this session's."""
        self._aside: tempfile.TemporaryDirectory[str] | None = None
        """Where a session without a file is, so that it can be replayed."""

    @property
    def path(self) -> Path | None:
        """The session's file, None where there is none (yet, or any more)."""
        return self.journal.path if self.journal is not None else self._taking

    # ---- what happens -----------------------------------------------------------------------

    def receive(self, record: Record) -> None:
        """Take in one record, after the screen did; returns at once."""
        if self.holding or not (isinstance(record, _ALL_KEPT) or worth_keeping(record)):
            return
        kept: list[Record | Settings | LoadSettings] = [record]
        if isinstance(record, ModelFacts):
            self._in_force = None
            kept.insert(0, self._load())
        elif isinstance(record, Ended) and record.command == Configure.kind:
            before, self._in_force = self._in_force, self._settings()
            kept += [self._in_force] if self._in_force != before else []
        for value in kept:
            entry = Entry(value, time.monotonic() - self._began)
            self.entries.append(entry)
            self._worth = self._worth or isinstance(value, _WORTH_A_FILE)
            if self.journal is not None:
                self._guarded(lambda journal, entry=entry: journal.write_entry(entry))  # type: ignore[misc]
            elif self.resumed is not None:
                self.adopt()
        if isinstance(record, PromptOpened) and not self._made:
            self._begin()

    # ---- the file ---------------------------------------------------------------------------

    def _begin(self) -> None:
        """Make the session's file, with what was kept until now."""
        self._made = True
        if self.directory is None:
            return
        directory = self.directory
        try:
            self.journal = self._created(directory)
        except RecordingError as error:
            self._failed(error)
            return
        self._copy(self.entries)
        threading.Thread(target=sessions.prune, args=(directory,), name="prune", daemon=True).start()

    def _created(self, directory: Path) -> Journal:
        """A file of a name that none has; another program may take the same one in the same second."""
        while True:
            path = sessions.new_path(directory, self._load().model)
            try:
                return Journal.create(path, self.program())
            except RecordingError as error:
                if not isinstance(error.__cause__, FileExistsError) or not path.exists():
                    raise

    def _copy(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self._guarded(lambda journal, entry=entry: journal.write_entry(entry))  # type: ignore[misc]

    def go_on(self, entries: Sequence[Entry], path: Path | None) -> None:
        """Continue a session that was recorded.

        Args:
            entries: What happened until now.
            path: The file to append to, which holds these; None begins one of its own with them.
        """
        self.entries = list(entries)
        self._began = time.monotonic() - (entries[-1].at if entries else 0.0)
        self.holding, self._in_force = False, None
        self._worth = True
        if path is None or self.directory is None:
            self._begin()
            return
        self._made = True
        self.resumed, self._taking, self._known = None, path, len(entries)
        self._resuming = threading.Thread(
            target=self._resume, args=(path, len(entries)), name="resume", daemon=True
        )
        self._resuming.start()

    def _resume(self, path: Path, known: int) -> None:
        """Take a file over; reading it through takes a moment, in the background."""
        try:
            entries, _, journal = Journal.resume(path, self.program())
            if len(entries) != known:
                journal.close()
                raise RecordingError(f"{path} has changed meanwhile: the session isn't appended to it.")
            self.resumed = journal
        except RecordingError as error:
            self.resumed = error

    def adopt(self) -> None:
        """Append to a file that was read through, from where it ended: called once `resumed` has it."""
        resumed, self.resumed = self.resumed, None
        self._taking = None
        if isinstance(resumed, RecordingError):
            self._failed(resumed)
        elif resumed is not None:
            self.journal = resumed
            self._copy(self.entries[self._known :])

    def rest(self) -> None:
        """Keep nothing until `go_on`: a recording is shown."""
        self.close()
        if self.notice:
            self._report(f"{self.notice} The session is saved to {self.saved} instead.")
        self.entries, self.holding, self._made, self._worth = [], True, False, False

    def settled(self) -> Path:
        """Have all of the session in a file, whether it is worth one or not; in a temporary one where none is kept.

        Raises:
            RecordingError: It can't be written.
        """
        self._worth = True
        self._guarded(lambda journal: journal.flush())
        self._guarded(lambda journal: journal.flush())  # of the file that took the place of a changed one
        if self.journal is not None:
            return self.journal.path
        self._aside = tempfile.TemporaryDirectory(prefix="inspector-")  # removed with this object
        path = Path(self._aside.name) / f"session{sessions.ENDING}"
        save_as(path, self.entries, self.program())
        return path

    def _guarded(self, write: Callable[[Journal], None]) -> None:
        if self.journal is None:
            return
        try:
            write(self.journal)
        except RecordingError as error:
            self._failed(error)

    def _failed(self, error: RecordingError) -> None:
        self.journal = None
        if isinstance(error, RecordingChanged) and self.directory is not None:
            try:
                journal = self._created(self.directory)
                for entry in self.entries:
                    journal.write_entry(entry)
            except RecordingError as other:
                error = other
            else:
                self.journal = journal
                self._report(f"{error.message} The session is saved to {journal.path} instead.")
                return
        self._report(f"{error} The session continues, and you can save it elsewhere: {key_for('save_as')}.")

    def close(self) -> None:
        """Write what waits and let go of the file; one with nothing in it but a prompt is removed."""
        if self._resuming is not None:
            self._resuming.join(PATIENCE)
            self.adopt()
        journal, self.journal, self.notice = self.journal, None, ""
        if journal is None:
            return
        try:
            try:
                journal.close()
            except RecordingChanged as error:
                if not self._worth or self.directory is None:
                    return
                self.notice = error.message
                journal = self._created(self.directory)
                for entry in self.entries:
                    journal.write_entry(entry)
                journal.close()
            if self._worth:
                self.saved = journal.path
            else:
                journal.path.unlink(missing_ok=True)
        except (RecordingError, OSError):
            pass  # the screen is gone: there is no one to report to


UNFIT = (LookupError, ValueError, TypeError, AttributeError, AssertionError, StopIteration)
"""What the views of a timeline raise when records contradict each other."""


def unfit(number: int, value: object, error: Exception) -> RecordingError:
    """The error of an entry that raised one of `UNFIT`.

    Args:
        number: Of the entry, from 1.
        value: What it tells.
        error: What was raised.
    """
    return RecordingError(
        f"Entry {number:,} ({type(value).__name__}) doesn't fit with those before it: {error!r}.",
        "The file was damaged or edited; take another copy of it.",
    )
