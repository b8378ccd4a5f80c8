"""Write a whole trace atomically: a reader of the file sees the old one or the new one."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO

from engine.errors import PathError, TraceError
from engine.files import PRIVATE, replacing, told
from engine.trace.encode import Encoder
from engine.trace.entry import Entry


def save_as(path: Path | str, entries: Iterable[Entry], program: str, force: bool = True) -> int:
    """Write a trace for its owner alone to read; an existing file is replaced once the new one is complete.

    Args:
        path: The file; `.gz` and `.zst` at its end compress it.
        entries: All of a session, in order.
        program: Name and version of the writing program.
        force: Whether an existing file may be replaced; it keeps its permissions.

    Returns:
        Bytes of the file.

    Raises:
        TraceError: It can't be written; an existing file is unchanged.
    """
    path = Path(path)
    try:
        with replacing(path, force, PRIVATE) as file:
            _write(file, path.suffix, entries, program)
            return file.tell()
    except PathError as error:
        raise TraceError(error.message, error.hint) from error


def unwritable(path: Path, error: OSError) -> TraceError:
    """Put an error of writing a file into words."""
    return TraceError(*told(path, error, "written"))


def _write(file: BinaryIO, suffix: str, entries: Iterable[Entry], program: str) -> None:
    encoder = Encoder(program, ends=True)
    with _compressed(file, suffix) as out:
        out.write(encoder.header())
        for entry in entries:
            out.write(encoder.entry(entry))
        out.write(encoder.end())


def _compressed(file: BinaryIO, suffix: str) -> AbstractContextManager[Any]:
    if suffix == ".gz":
        return gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=file, mtime=0)
    if suffix == ".zst":
        import zstandard  # only traces that end in .zst need it

        return zstandard.ZstdCompressor(level=9, write_checksum=True).stream_writer(file, closefd=False)
    return nullcontext(file)
