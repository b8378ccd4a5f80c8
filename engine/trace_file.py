"""Read a trace file: plain, gzip or Zstandard, line by line, within bounds that no file can pass."""

from __future__ import annotations

import gc
import gzip
import io
import os
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from engine.errors import TraceError
from engine.trace_decode import Decoder
from engine.trace_encode import LINE_LIMIT
from engine.trace_entry import END, MAGIC, VERSION, Entry, Header
from engine.trace_lines import unsealed, whole
from engine.trace_shapes import Misfit
from engine.trace_tree import Nodes
from engine.trace_values import brief, read_text

TOTAL_LIMIT = 512 * 2**20
"""Bytes of a trace at most, uncompressed: some 350,000 steps with 20 candidates."""
ENTRIES_LIMIT = 1_000_000
VALUES_LIMIT = 4_000_000
"""Values of one line at most: in memory each takes many times its bytes in the file."""
_FIRST_LIMIT = 2**20
"""Bytes of a header at most."""
_WINDOW = 2**25
"""Bytes that Zstandard may ask for to look back."""
_BEGIN = b'{"%b":' % MAGIC.encode()
_END = b'{"%b":' % END.encode()
_MEND = "The file was damaged or edited; take another copy of it."


class Reader(Iterator[Entry]):
    """The entries of a trace, one after another. Closes the file at the end, or as a context manager.

    Args:
        path: The file; what it is compressed with is told from its first bytes.
        torn_ok: Whether the last line may be incomplete, as the program leaves it when it is killed: it is left out.

    Raises:
        TraceError: There is no such file, or it is no trace that this version reads.
    """

    def __init__(self, path: Path | str, torn_ok: bool = False) -> None:
        self.path = Path(path)
        self.torn = 0
        """Bytes of an incomplete last line, known at the end."""
        self.complete = 0
        """Bytes up to the end of the last complete line, uncompressed."""
        self.line = 0
        """Of the last entry, from 1."""
        self.entries = 0
        self.problems: list[TraceError] = []
        """What was found wrong in parts that were decoded later, once they were looked at."""
        self._torn_ok = torn_ok
        self._nodes = Nodes()
        self._raw = self._opened()
        try:
            self._file = self._plain()
            self.header, self._decoder = self._head(self._next_line(_FIRST_LIMIT))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; what was read stays good."""
        self._raw.close()

    @property
    def progress(self) -> float:
        """How much of the file was read, 0 to 1."""
        if self._raw.closed:
            return 1.0
        return min(1.0, self._raw.tell() / max(1, self._size))

    def __next__(self) -> Entry:
        while not self._raw.closed and (line := self._next_line(LINE_LIMIT)):
            entry = self._entry(line)
            if entry is not None:
                return entry
        if self._lacks_end and not self._raw.closed:
            raise self._wrong("lacks: the file is cut short before it", next_line=True)
        self.close()
        raise StopIteration

    def slice(self, seconds: float) -> list[Entry]:
        """The next entries, for a screen that reads a long trace between its frames.

        Args:
            seconds: After this time it returns; the one entry under way is still read.

        Returns:
            Those read; empty at the end alone.

        Raises:
            TraceError: As iterating does.
        """
        end = time.perf_counter() + seconds
        found: list[Entry] = []
        with uncollected():
            for entry in self:
                found.append(entry)
                if time.perf_counter() >= end:
                    break
        return found

    # ---- bytes ------------------------------------------------------------------------------

    def _opened(self) -> io.BufferedReader:
        try:
            file = self.path.open("rb")
        except OSError as error:
            raise TraceError(
                f"{self.path} can't be read: {error.strerror or error}.", "Check its name."
            ) from error
        self._size = os.fstat(file.fileno()).st_size
        return file

    def _plain(self) -> Any:
        """The file without its compression."""
        begin: bytes = self._guarded(lambda: self._raw.peek(4))[:4]
        if begin[:2] == b"\x1f\x8b":
            self.compressed = True
            return io.BufferedReader(gzip.GzipFile(fileobj=self._raw), 2**17)
        if begin == b"\x28\xb5\x2f\xfd":
            self.compressed = True
            return io.BufferedReader(_zstandard(self._raw), 2**17)
        self.compressed = False
        if self._size > TOTAL_LIMIT:
            raise self._too_long()
        return self._raw

    def _next_line(self, limit: int) -> bytes:
        """A line with its end, nothing at the end of the file."""
        line: bytes = self._guarded(lambda: self._file.readline(limit + 1))
        if not line:
            return line
        self.line += 1
        if len(line) > limit:
            raise self._wrong(f"is longer than the {limit // 2**20} MiB that a line may have")
        if len(line) > _FIRST_LIMIT and sum(map(line.count, (b",", b"[", b"{"))) > VALUES_LIMIT:
            raise self._wrong(f"has more than {VALUES_LIMIT} values")
        if self.complete + len(line) > TOTAL_LIMIT or self.entries >= ENTRIES_LIMIT:
            raise self._too_long()
        self.complete += len(line)
        return line

    def _guarded(self, read: Any) -> Any:
        """Read, with what a damaged file makes the libraries raise in words."""
        try:
            return read()
        except EOFError as error:
            raise self._wrong("is cut short: the compressed data end in it", next_line=True) from error
        except (OSError, zlib.error, _zstandard_error()) as error:
            why = getattr(error, "strerror", None) or error
            raise self._wrong(f"can't be read: {why}", next_line=True) from error

    # ---- lines ------------------------------------------------------------------------------

    def _head(self, line: bytes) -> tuple[Header, Decoder]:
        """A header line."""
        if not line.startswith(_BEGIN):
            what = "is empty" if not line else "is no trace of this program"
            raise TraceError(f"{self.path} {what}.", "Give a file that inspector saved.", self.line)
        try:
            header = _header(whole(unsealed(line)[0]))
        except Misfit as error:
            raise self._wrong(str(error)) from error
        self._lacks_end = header.ends
        return header, Decoder(header, self.problems.append)

    def _entry(self, line: bytes) -> Entry | None:
        """What a line holds; None for a header and for an incomplete end."""
        whole_line = line.endswith(b"\n")
        if self._torn_ok and not whole_line and not self.compressed and not self.header.ends:
            self.torn, self.complete = len(line), self.complete - len(line)
            return None
        if line.startswith(_BEGIN):
            self.header, self._decoder = self._head(line)
            return None
        try:
            if line.startswith(_END):
                self._end(line)
                return None
            entry = self._decoder.entry(line, self.line)
            self._nodes.check(entry.value)
        except Misfit as error:
            raise self._wrong(str(error) if whole_line else f"is cut short: it {error}") from error
        self.entries += 1
        return entry

    def _end(self, line: bytes) -> None:
        """The last line of a file that was written whole."""
        count = whole(unsealed(line)[0]).get(END)
        if count != self.line - 1:
            raise Misfit(f"counts {brief(count)} lines before it, and there are {self.line - 1}")
        self._lacks_end = False

    def _wrong(self, what: str, next_line: bool = False) -> TraceError:
        line = self.line + next_line
        self.close()
        return TraceError(f"Line {line} of {self.path} {what}.", _MEND, line)

    def _too_long(self) -> TraceError:
        self.close()
        return TraceError(
            f"{self.path} is too long: {TOTAL_LIMIT // 2**20} MiB and {ENTRIES_LIMIT} lines of a trace are read.",
            "Record fewer candidates, or shorter sessions.",
            self.line,
        )


@contextmanager
def uncollected() -> Iterator[None]:
    """No garbage is collected meanwhile: nothing of a trace is any, and looking takes as long as reading it."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def _header(found: dict[str, Any]) -> Header:
    version, fields = found.get(MAGIC), found.get("fields")
    if type(version) is not int or version < 1:
        raise Misfit(f"has no format number but {brief(version)}")
    if version > VERSION:
        raise Misfit(
            f"is of format {version}, and this program reads up to {VERSION}: a newer version wrote it"
        )
    if type(fields) is not dict or not all(_names(names) for names in fields.values()):
        raise Misfit("must have the fields of each class as a list of names")
    program, created = read_text(found.get("program", "")), read_text(found.get("created", ""))
    return Header(program, created, fields, found.get("ends") is True)


def _names(names: Any) -> bool:
    return type(names) is list and all(type(name) is str for name in names) and len(set(names)) == len(names)


def _zstandard(file: io.BufferedReader) -> Any:
    try:
        import zstandard  # only such traces need it
    except ImportError as error:
        raise TraceError("Reading a .zst trace needs the package zstandard.", "Install it.") from error
    decompressor = zstandard.ZstdDecompressor(max_window_size=_WINDOW)
    return decompressor.stream_reader(file, read_across_frames=True, closefd=False)


def _zstandard_error() -> type[Exception]:
    loaded: Any = sys.modules.get("zstandard")
    return zlib.error if loaded is None else loaded.ZstdError
