"""Write a whole trace atomically: a reader of the file sees the old one or the new one."""

from __future__ import annotations

import gzip
import os
import secrets
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO

from engine.errors import TraceError
from engine.trace.encode import Encoder
from engine.trace.entry import Entry


def save_as(path: Path | str, entries: Iterable[Entry], program: str) -> int:
    """Write a trace; an existing file is replaced once the new one is complete.

    Args:
        path: The file; `.gz` and `.zst` at its end compress it.
        entries: All of a session, in order.
        program: Name and version of the writing program.

    Returns:
        Bytes of the file.

    Raises:
        TraceError: It can't be written; an existing file is unchanged.
    """
    path = Path(os.path.realpath(path))  # a link stays a link
    aside = path.with_name(f".{path.name[:100]}.{secrets.token_hex(4)}.part")
    try:
        with _created(aside) as file:
            _write(file, path.suffix, entries, program)
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        os.replace(aside, path)
        _settle(path.parent)
    except BaseException as error:
        aside.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise unwritable(path, error) from error
        raise
    return size


def unwritable(path: Path, error: OSError) -> TraceError:
    """Put an error of writing a file into words."""
    return TraceError(
        f"{path} can't be written: {error.strerror or error}.", "Choose another place, or make room there."
    )


def _created(path: Path) -> BinaryIO:
    # not `tempfile`: a trace is a document, with the permissions that the person's documents have
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb")


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


def _settle(directory: Path) -> None:
    """Sync the new name to the disk, too."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
