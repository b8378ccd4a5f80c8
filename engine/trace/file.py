"""Trace files, plain, gzip or Zstandard: read line by line within bounds that no file can exceed, written whole."""

from __future__ import annotations

import gc
import io
import os
import sys
import time
import zlib
from collections.abc import Collection, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn, Self, cast

from engine.errors import PathError, TraceError
from engine.files import PRIVATE, message_and_hint, open_regular, replacing
from engine.trace.encode import Encoder
from engine.trace.lines import END, MAGIC, VERSION, Entry, Header, KnownNodes, unsealed, whole
from engine.trace.values import (
    FIRST_LIMIT,
    LINE_LIMIT,
    Misfit,
    brief,
    built,
    excess,
    read_text,
    too_dense,
    too_long,
)

if TYPE_CHECKING:
    from engine.trace.decode import Decoder

_WINDOW = 2**25
"""Bytes that Zstandard may ask for to look back."""
_BEGIN = b'{"%b":' % MAGIC.encode()
_END = b'{"%b":' % END.encode()
_MEND = "The file was damaged or edited; take another copy of it."


class TraceReader(Iterator[Entry]):
    """The entries of a trace, one after another. Closes the file at the end, or as a context manager.

    Args:
        path: The file; its first bytes show its compression.
        torn_ok: Whether the last line may be incomplete, as a killed program leaves it: it is left out.
        only: Kinds of entries that are read; the others are passed over, undecoded and unchecked. None for all.
        follow: Whether to wait for more at the end of a file that a program appends to: iterating ends there, and goes
            on from there when it is asked again.

    Raises:
        TraceError: There is no such file, or it isn't a trace that this version reads.
    """

    def __init__(
        self,
        path: Path | str,
        torn_ok: bool = False,
        follow: bool = False,
        only: Collection[str] | None = None,
    ) -> None:
        self.path = Path(path)
        self.torn = 0
        """Bytes of an incomplete last line, known at the end."""
        self.complete = 0
        """Bytes up to the end of the last complete line, uncompressed."""
        self.line = 0
        """Of the last entry, from 1."""
        self.entries = 0
        self.problems: list[TraceError] = []
        """Errors in parts that were decoded later, when they were needed."""
        self.built = 0
        """Bytes of memory that what was read takes, estimated from above."""
        self._torn_ok, self._follow = torn_ok, follow
        self._nodes = KnownNodes()
        self._only = None if only is None else (_BEGIN, _END, *(b'{"%b":' % kind.encode() for kind in only))
        self._decoder: Decoder | None = None
        self._raw = self._opened()
        try:
            self._file = self._plain()
            self.header, self._decoder = self._head(self._next_line(FIRST_LIMIT))
            """The first line's, also of a session that was continued."""
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
        """Close the file; entries read before stay valid."""
        self._raw.close()
        if self._decoder is not None:
            self._decoder.forget()

    @property
    def progress(self) -> float:
        """How much of the file was read, 0 to 1."""
        if self._raw.closed:
            return 1.0
        return min(1.0, self._raw.tell() / max(1, self._size))

    @property
    def follows(self) -> bool:
        """True if more may come at the end: not in a file that is compressed, or has its last line."""
        return self._follow and not (self.compressed or self._ends or self._raw.closed)

    def __next__(self) -> Entry:
        while not self._raw.closed and (line := self._next_line(LINE_LIMIT)):
            if self.follows and not line.endswith(b"\n"):
                self._put_back(line)
                break
            if self._only is not None and not line.startswith(self._only):
                continue
            entry = self._entry(line)
            if entry is not None:
                return entry
        if self.follows:
            self._check_same()
            raise StopIteration
        if self._lacks_end and not self._raw.closed:
            raise self._wrong("lacks: the file is cut short before it", next_line=True)
        self.close()
        raise StopIteration

    def slice(self, seconds: float) -> list[Entry]:
        """The next entries, for a screen that reads a long trace between its frames.

        Args:
            seconds: After this time it returns; the current entry is still read.

        Returns:
            The entries read; empty at the end alone.

        Raises:
            TraceError: As iterating does.
        """
        end = time.perf_counter() + seconds
        entries: list[Entry] = []
        with uncollected():
            for entry in self:
                entries.append(entry)
                if time.perf_counter() >= end:
                    break
        return entries

    # ---- bytes ------------------------------------------------------------------------------

    def _opened(self) -> io.BufferedReader:
        try:
            file = open_regular(self.path)
        except OSError as error:
            raise TraceError(*message_and_hint(self.path, error)) from error
        self._size = os.fstat(file.fileno()).st_size
        return file

    def _plain(self) -> Any:
        """The file without its compression."""
        try:
            begin = self._raw.peek(4)[:4]
        except OSError as error:
            raise self._unreadable(error) from error
        if begin[:2] == b"\x1f\x8b":
            self.compressed = True
            import gzip  # only traces that are packed so need it

            return io.BufferedReader(gzip.GzipFile(fileobj=self._raw), 2**17)
        if begin == b"\x28\xb5\x2f\xfd":
            self.compressed = True
            return io.BufferedReader(_unpacked(self._raw), 2**17)
        self.compressed = False
        self._bound(self._size)
        return self._raw

    def _next_line(self, limit: int) -> bytes:
        """A line with its end, empty at the end of the file."""
        try:
            line: bytes = self._file.readline(limit + 1)
        except Exception as error:
            raise self._unreadable(error) from error
        if not line:
            return line
        self.line += 1
        if too_much := excess(line, limit):
            raise self._wrong(too_much)
        self._bound(self.complete + len(line))
        self.complete += len(line)
        return line

    def _put_back(self, line: bytes) -> None:
        """Read a line again once it is whole."""
        self._raw.seek(-len(line), os.SEEK_CUR)
        self.line -= 1
        self.complete -= len(line)

    def _check_same(self) -> None:
        """See that what comes at the end of the file would be what follows.

        Raises:
            TraceError: It was cut, removed or replaced; what was read stands.
        """
        ours = os.fstat(self._raw.fileno())
        self._size = ours.st_size
        try:
            theirs = os.stat(self.path)
        except OSError:
            self._lost("was removed or renamed")
        if ours.st_size < self.complete:
            self._lost("was cut shorter than what was read of it")
        if (theirs.st_dev, theirs.st_ino) != (ours.st_dev, ours.st_ino):
            self._lost("was replaced by another file")

    def _lost(self, what: str) -> NoReturn:
        self.close()
        raise TraceError(
            f"{self.path} {what}, so this program no longer follows it.", "Open it again.", self.line
        )

    def _unreadable(self, error: Exception) -> TraceError:
        """Put an error of the libraries, raised on a damaged file, into words."""
        if isinstance(error, EOFError):
            return self._wrong("is cut short: the compressed data end in it", next_line=True)
        if isinstance(error, (OSError, zlib.error, _zstd_error())):
            return self._wrong(f"can't be read: {getattr(error, 'strerror', None) or error}", next_line=True)
        raise error

    # ---- lines ------------------------------------------------------------------------------

    def _head(self, line: bytes) -> tuple[Header, Decoder]:
        """Read a header line."""
        from engine.trace.decode import Decoder  # a session that begins reads no file

        if not line.startswith(_BEGIN):
            what = "is empty" if not line else "is not a trace of this program"
            raise TraceError(f"{self.path} {what}.", "Give a file that inspector saved.", self.line)
        try:
            header = _header(whole(unsealed(line)[0]))
        except Misfit as error:
            raise self._wrong(str(error)) from error
        self._ends = self._lacks_end = header.ends
        return header, Decoder(header, self.problems.append, self._spend)

    def _entry(self, line: bytes) -> Entry | None:
        """The entry of a line; None for a header and for an incomplete end."""
        whole_line = line.endswith(b"\n")
        if self._torn_ok and not whole_line and not self.compressed and not self._ends:
            self.torn, self.complete = len(line), self.complete - len(line)
            return None
        if line.startswith(_BEGIN):
            _, self._decoder = self._head(line)
            return None
        try:
            if line.startswith(_END):
                self._end(line)
                return None
            entry = self._decoder.entry(line, self.line)  # type: ignore[union-attr]
            if self._only is None:
                self._nodes.check(entry.value)
        except Misfit as error:
            raise self._wrong(str(error) if whole_line else f"is cut short: it {error}") from error
        self.entries += 1
        return entry

    def _end(self, line: bytes) -> None:
        """Check the last line of a complete file."""
        count = whole(unsealed(line)[0]).get(END)
        if count != self.line - 1:
            raise Misfit(f"counts {brief(count)} lines before it, and there are {self.line - 1}")
        self._lacks_end = False

    def _wrong(self, what: str, next_line: bool = False) -> TraceError:
        line = self.line + next_line
        self.close()
        return TraceError(f"Line {line} of {self.path} {what}.", _MEND, line)

    def _spend(self, content: bytes) -> None:
        """Count what is about to be built of some JSON."""
        self.built += built(content)
        self._bound(self.complete)

    def _bound(self, size: int) -> None:
        """Refuse a file that is too long, or too large once it is read."""
        packed = self._raw.tell() if self.compressed else size
        dense = too_dense(size, packed)
        if too_much := dense or too_long(size, self.line, self.built):
            self.close()
            hint = _MEND if dense else "Record fewer candidates, or shorter sessions."
            raise TraceError(f"{self.path} {too_much}.", hint, self.line)


@contextmanager
def uncollected() -> Iterator[None]:
    """Turn garbage collection off, and freeze the objects made meanwhile: a trace lasts as long as the process.

    Scanning it takes as long as reading it, and would pause a screen for 0.3 s repeatedly.
    """
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if before:
            gc.enable()


def _header(head: dict[str, Any]) -> Header:
    version, fields = head.get(MAGIC), head.get("fields")
    if type(version) is not int or version < 1:
        raise Misfit(f"has no format number but {brief(version)}")
    if version > VERSION:
        raise Misfit(
            f"is of format {version}, and this program reads up to {VERSION}: a newer version wrote it"
        )
    if type(fields) is not dict or not all(_names(names) for names in fields.values()):
        raise Misfit("must have the fields of each class as a list of names")
    program, created = read_text(head.get("program", "")), read_text(head.get("created", ""))
    return Header(program, created, fields, head.get("ends") is True)


def _names(names: Any) -> bool:
    return type(names) is list and all(type(name) is str for name in names) and len(set(names)) == len(names)


def _unpacked(file: io.BufferedReader) -> io.BufferedIOBase:
    zstd = _zstd()
    options = {zstd.DecompressionParameter.window_log_max: _WINDOW.bit_length() - 1}
    return cast(io.BufferedIOBase, zstd.ZstdFile(file, options=options))


def _zstd() -> Any:
    """Python's own module, and before 3.14 the same as a package: only traces that end in .zst need it."""
    try:
        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            from backports import zstd
    except ImportError as error:
        raise TraceError("A .zst trace needs the package backports.zstd.", "Install it.") from error
    return zstd


def _zstd_error() -> type[Exception]:
    loaded: Any = sys.modules.get("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
    return zlib.error if loaded is None else loaded.ZstdError


# ---- writing ----------------------------------------------------------------------------------


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
    return TraceError(*message_and_hint(path, error, "written"))


def _write(file: BinaryIO, suffix: str, entries: Iterable[Entry], program: str) -> None:
    encoder = Encoder(program, ends=True)
    with _compressed(file, suffix) as out:
        out.write(encoder.header())
        for entry in entries:
            out.write(encoder.entry(entry))
        out.write(encoder.end())


def _compressed(file: BinaryIO, suffix: str) -> AbstractContextManager[Any]:
    if suffix == ".gz":
        import gzip

        return gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=file, mtime=0)
    if suffix == ".zst":
        zstd = _zstd()
        set_to = zstd.CompressionParameter
        packing = {set_to.compression_level: 9, set_to.checksum_flag: 1}
        return cast(AbstractContextManager[Any], zstd.ZstdFile(file, "wb", options=packing))
    return nullcontext(file)
