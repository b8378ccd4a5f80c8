"""The recording of the running session: all entries in memory, and in a file as they come.

A session's file is created with its first prompt and written by its own thread, so that no frame waits for the disk. A
failure is reported once, and the session continues: it can be saved elsewhere from memory.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from engine import protocol
from engine.errors import RecordingError
from engine.protocol import Record
from engine.recording import Entry, Journal, RecordingChanged, RecordingReader, save_as, worth_keeping
from engine.settings import LoadSettings, Settings
from inspector.display import visible
from inspector.keys import key_for
from inspector.recordings import sessions

_WORTH_A_FILE = (protocol.Step, protocol.BeamStep, protocol.Marked, protocol.Deleted)
"""A session without any of these entries, and without a view of the model's internals, leaves no file."""


class Recorder:
    """Records one session.

    Args:
        directory: Directory of its file; None to keep it only in memory.
        program: Returns name and version of the program; called when something is written.
        load: Returns the load settings of the current model.
        settings: Returns the sampler's settings in force.
        announce: Shows a notification with a printable text, a title and a severity.
    """

    def __init__(
        self,
        directory: Path | None,
        program: Callable[[], str],
        load: Callable[[], LoadSettings],
        settings: Callable[[], Settings],
        announce: Callable[[str, str, Literal["information", "warning"]], None],
    ) -> None:
        self.entries: list[Entry] = []
        """Everything so far, in order."""
        self.program = program
        self.journal: Journal | None = None
        self.saved: Path | None = None
        """The file of the last closed session; None if it left no file."""
        self.notice = ""
        """Why `saved` is a different file from before; empty if it isn't."""
        self.holding = False
        """True while a recording is replayed and nothing is recorded."""
        self.directory, self._announce = directory, announce
        self._load, self._settings = load, settings
        self._in_force: Settings | None = None
        """The settings last recorded for the current model."""
        self._began = time.monotonic()
        self._made = self._worth = False
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        """Directory of a session without a file, from which it can be replayed."""

    @property
    def path(self) -> Path | None:
        """The session's file; None if there is none yet, or none any more."""
        return self.journal.path if self.journal is not None else None

    # ---- records ----------------------------------------------------------------------------

    def receive(self, record: Record) -> None:
        """Record one record, after the screen received it; returns at once."""
        if self.holding or not worth_keeping(record):
            return
        kept: list[Record | Settings | LoadSettings] = [record]
        if isinstance(record, protocol.ModelFacts):
            self._set_aside()
            self._in_force = None
            kept.insert(0, self._load())
        elif isinstance(record, protocol.Ended) and record.command == protocol.Configure.kind:
            before, self._in_force = self._in_force, self._settings()
            kept[:0] = [self._in_force] if self._in_force != before else []
        for value in kept:
            entry = Entry(value, time.monotonic() - self._began)
            self.entries.append(entry)
            viewed = isinstance(getattr(value, "facts", None), protocol.CaptureFacts)
            self._worth = self._worth or viewed or isinstance(value, _WORTH_A_FILE)
            with self._reporting():  # on a failure a new file gets all entries
                if self.journal is not None:
                    self.journal.write(entry)
        if isinstance(record, protocol.PromptOpened) and not self._made:
            self._begin()

    def _set_aside(self) -> None:
        """Close the file of the session with the previous model, if it is worth keeping."""
        if self.journal is None or not self._worth:
            return
        self.close()
        self.entries, self._made, self._worth = [], False, False
        self._began = time.monotonic()
        text = f"{self.notice} The session with the model before is saved".lstrip()
        self._announce(
            visible(f"{text}: {key_for('sessions')} goes back to it."), "Another session", "information"
        )

    # ---- the file ---------------------------------------------------------------------------

    def _begin(self) -> None:
        """Create the session's file, with the entries so far."""
        self._made = True
        if self.directory is not None:
            with self._reporting():
                self.journal = self._copied(self.directory)
                threading.Thread(
                    target=sessions.prune, args=(self.directory,), name="prune", daemon=True
                ).start()

    def _copied(self, directory: Path) -> Journal:
        """Create a new file with all entries; retried if another program takes the name in the same second."""
        journal = None
        while journal is None:
            path = sessions.new_path(directory, self._load().model)
            try:
                journal = Journal.create(path, self.program())
            except RecordingError as error:
                if not isinstance(error.__cause__, FileExistsError) or not path.exists():
                    raise
        for entry in self.entries:
            journal.write(entry)
        return journal

    def go_on(self, entries: Sequence[Entry], read: RecordingReader | None) -> None:
        """Continue a recorded session.

        Args:
            entries: The entries so far.
            read: The reader that read these entries, to append to its file; None to create a new file.
        """
        self.entries = list(entries)
        self._began = time.monotonic() - (entries[-1].at if entries else 0.0)
        self.holding, self._in_force = False, None
        self._worth = True
        if read is None or self.directory is None:
            self._begin()
            return
        self._made = True
        with self._reporting():
            self.journal = Journal.resume(read, self.program())

    def rest(self) -> None:
        """Stop recording until `go_on`, while a recording is shown."""
        self.close()
        if self.notice:
            self._warn(f"{self.notice} The session is saved to {self.saved} instead.")
        self.entries, self.holding, self._made, self._worth = [], True, False, False

    def settled(self) -> Path:
        """Write the whole session to its file, or to a temporary one if it has none, and return the path.

        Raises:
            RecordingError: The file can't be written.
        """
        self._worth = True
        for _ in range(2):  # twice: the first flush may replace a changed file by a new one
            with self._reporting():
                if self.journal is not None:
                    self.journal.flush()
        if self.journal is not None:
            return self.journal.path
        self._temporary = tempfile.TemporaryDirectory(prefix="inspector-")  # removed with this object
        path = Path(self._temporary.name) / f"session{sessions.ENDING}"
        save_as(path, self.entries, self.program())
        return path

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """Report an error of the file, and continue with a new file or without one."""
        try:
            yield
        except RecordingError as failed:
            self.journal, error = None, failed
            if isinstance(failed, RecordingChanged) and self.directory is not None:
                try:
                    self.journal = self._copied(self.directory)
                    self._warn(f"{failed.message} The session is saved to {self.journal.path} instead.")
                    return
                except RecordingError as other:
                    error = other
            elsewhere = f"you can save it elsewhere: {key_for('save_as')}"
            self._warn(f"{error} The session continues, and {elsewhere}.")

    def _warn(self, text: str) -> None:
        title = "No longer saved" if self.path is None else "Saved to another file"
        self._announce(visible(text), title, "warning")

    def close(self) -> None:
        """Write the rest and close the file; one that isn't worth keeping is removed."""
        journal, self.journal, self.notice = self.journal, None, ""
        if journal is None:
            return
        with suppress(RecordingError, OSError):  # the screen is closed: an error can't be shown
            try:
                journal.close()
            except RecordingChanged as error:
                if not self._worth or self.directory is None:
                    return
                self.notice = error.message
                journal = self._copied(self.directory)
                journal.close()
            if self._worth:
                self.saved = journal.path
            else:
                journal.path.unlink(missing_ok=True)


UNFIT = (LookupError, ValueError, TypeError, AttributeError, AssertionError, StopIteration)
"""Exceptions that views of a timeline raise when records contradict each other."""


def unfit(number: int, value: object, error: Exception) -> RecordingError:
    """The error of an entry that raised one of `UNFIT`.

    Args:
        number: Number of the entry, from 1.
        value: Its record.
        error: The exception.
    """
    return RecordingError(
        f"Entry {number:,} ({type(value).__name__}) doesn't fit with those before it: {error!r}.",
        "The file was damaged or edited; take another copy of it.",
    )
