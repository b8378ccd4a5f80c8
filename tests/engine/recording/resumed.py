"""A file that is read to its end, and continued."""

from __future__ import annotations

from pathlib import Path

from engine.recording import Entry, Journal, RecordingReader


def resumed(path: Path | str, program: str) -> tuple[list[Entry], RecordingReader, Journal]:
    """The entries of a file, the reader that read them, and the journal that continues it."""
    reader = RecordingReader(path, torn_ok=True)
    entries = list(reader)
    return entries, reader, Journal.resume(reader, program)
