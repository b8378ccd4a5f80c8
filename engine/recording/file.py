"""The file of a recording: frames of msgpack, uncompressed while it grows, and compressed with Zstandard when saved as
`.zst`.

`inspector/help/recording-format.md` describes the format. The reader trusts nothing: types, ranges and sizes are
checked before anything is displayed. In memory, the content takes at most about 40 times the bytes of the file, and a
rejected frame at most 80 times its own.
"""

from __future__ import annotations

import gc
import io
import os
import re
import sys
import zlib
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from struct import Struct as Layout
from types import TracebackType
from typing import Any, BinaryIO, NoReturn, Self, Union, cast

from msgspec import MsgspecError, Struct, json, msgpack, to_builtins
from msgspec.structs import force_setattr, replace

from engine import protocol
from engine.errors import PathError, RecordingError, SettingsError
from engine.files import PRIVATE, message_and_hint, open_regular, replacing
from engine.protocol import AS_BEFORE, COMMANDS, RECORDS, Candidates, Command, Distribution, Finite, Step
from engine.recording.nodes import KnownNodes, Misfit
from engine.setting import check
from engine.settings import LoadSettings, Settings

Kept = protocol.Record | Settings | LoadSettings
"""Values of entries: records, and settings from the time when they apply."""
MAGIC = b"mlx-inspector recording 1\n"
MIB = 2**20
FRAME_LIMIT = 8 * MIB
"""Maximum bytes of a frame; a single byte, such as a small number, may take 32 bytes in memory."""
TOTAL_LIMIT = 256 * MIB
"""Maximum bytes of a recording, uncompressed: about 85,000 steps with 20 candidates."""
RATIO_LIMIT, RATIO_FREE = 20, 4 * MIB
"""Maximum decompression ratio, checked after the first `RATIO_FREE` bytes; sessions have 2 to 10."""
WINDOW_LOG = 25
"""Base-2 logarithm of the maximum Zstandard window in bytes."""
_BEFORE = Layout("<II")
"""Prefix of each frame: its number of bytes and its CRC-32, which is 0 in a compressed file."""
_MEND = "The file was damaged or edited; take another copy of it."


# ---- entries ----------------------------------------------------------------------------------


class Header(Struct, frozen=True, tag_field="event"):
    """First entry of a recording, and of each part that a later run of the program appended."""

    program: str
    """Name and version of the program that wrote it."""
    created: str
    """Time of creation, as ISO 8601 in UTC."""
    ends: bool = False
    """True if an `End` follows, so that a truncated file can be detected. A journal has none."""


class End(Struct, frozen=True, tag_field="event"):
    """The last entry of a complete file."""

    entries: int
    """Number of entries before it, including headers."""


class SettingsUsed(Struct, frozen=True, tag_field="event", tag="Settings"):
    """Settings of the sampler that apply from here on."""

    settings: Settings


class LoadSettingsUsed(Struct, frozen=True, tag_field="event", tag="LoadSettings"):
    """Settings of the model that is loaded next."""

    settings: LoadSettings


class Entry(Struct, frozen=True, gc=False):
    """One entry of a recording, and the time when it was written."""

    value: Kept
    at: float = 0.0
    """Seconds since the session began."""


class _Frame(Struct, frozen=True, gc=False, array_like=True):
    at: Finite
    value: Any


class _Event(Struct, frozen=True):
    event: str


class _Kind(Struct, frozen=True, array_like=True):
    at: Finite
    value: _Event


def _packed(value: object) -> object:
    if isinstance(value, Candidates):
        return value.packed
    raise TypeError(f"{type(value).__name__} has no place in a recording")


def _listed(value: object) -> object:
    if isinstance(value, Candidates):
        return tuple(value)
    raise TypeError(f"{type(value).__name__} has no JSON")


def _unpacked(kind: type, value: object) -> object:
    if kind is Candidates and isinstance(value, bytes):
        return Candidates.checked(value)
    raise ValueError("Expected `bytes`")


_ENCODER = msgpack.Encoder(enc_hook=_packed)
_JSON = json.Encoder(enc_hook=_listed)
_KIND = msgpack.Decoder(_Kind)


@cache
def _decoder() -> msgpack.Decoder[Any]:
    """The decoder of frames, made when the first file is read, since that takes 25 ms."""
    kinds: Any = Union[Header, End, SettingsUsed, LoadSettingsUsed, *RECORDS.values()]
    return msgpack.Decoder(tuple[Finite, kinds], dec_hook=_unpacked)


def _encoded(encoder: msgpack.Encoder | json.Encoder, value: object) -> bytes:
    """Encode a value; lone surrogates in its texts, as in a file name that isn't UTF-8, are escaped."""
    try:
        return encoder.encode(value)
    except UnicodeEncodeError:
        return encoder.encode(_escaped(to_builtins(value, builtin_types=(bytes,), enc_hook=encoder.enc_hook)))


def _escaped(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-8", "backslashreplace").decode()
        case list() | tuple():
            return [_escaped(each) for each in value]
        case dict():
            return {name: _escaped(each) for name, each in value.items()}
    return value


def as_json(value: object) -> bytes:
    """Encode a record, or another value of the protocol, as one line of JSON.

    Keys are the names of the fields; bytes become base64, and infinity and NaN become null.
    """
    return _encoded(_JSON, value)


def question(command: Command) -> str:
    """Encode a command as text, to record it and to look up its answer."""
    return as_json(command).decode()


@cache
def _questions() -> json.Decoder[Any]:
    kinds: Any = Union[tuple(COMMANDS.values())]  # noqa: UP007
    return json.Decoder(kinds)


def asked(text: str) -> Command | None:
    """Decode the command of a `question`; None if this version doesn't know it."""
    try:
        command: Command = _questions().decode(text)
    except (MsgspecError, RecursionError):
        return None
    return command


# ---- writing ----------------------------------------------------------------------------------


class FrameWriter:
    """Makes the frames of one recording.

    Args:
        program: Name and version of the writing program.
        ends: True if `end` will be called.
        checksums: True to give each frame a checksum. A compressed file has its own checksum, and is 1 % smaller
            without them.
    """

    def __init__(self, program: str, ends: bool = False, checksums: bool = True) -> None:
        self._checksums = checksums
        self._header = Header(program, datetime.now(UTC).isoformat(timespec="seconds"), ends)
        self.last: dict[int, Distribution] = {}
        """Last distribution of each node."""
        self.size = self.entries = 0

    def header(self) -> bytes:
        """The first frame of a file or of an appended part."""
        return self._frame(self._header, 0.0)

    def entry(self, entry: Entry) -> bytes:
        """The frame of an entry.

        Raises:
            RecordingError: The entry or the recording is too large.
        """
        value: Any = entry.value
        if isinstance(value, Settings):
            value = SettingsUsed(value)
        elif isinstance(value, LoadSettings):
            value = LoadSettingsUsed(value)
        elif isinstance(value, Step) and self.last.get(value.parent) == value.choice:
            value = replace(value, choice=AS_BEFORE)
        frame = self._frame(value, entry.at)
        note_last(self.last, entry.value)
        return frame

    def end(self) -> bytes:
        """The last frame of a complete file."""
        return self._frame(End(self.entries), 0.0)

    def _frame(self, value: object, at: float) -> bytes:
        name = type(value).__name__
        try:
            payload = _encoded(_ENCODER, _Frame(at, value))
        except (OverflowError, TypeError) as error:
            hint = "This is a fault of the program; please report it."
            raise RecordingError(f"{name} can't be recorded: {error}.", hint) from error
        self.size += _BEFORE.size + len(payload)
        if len(payload) > FRAME_LIMIT or self.size > TOTAL_LIMIT:
            of, limit = (name, FRAME_LIMIT) if len(payload) > FRAME_LIMIT else ("The recording", TOTAL_LIMIT)
            message = f"{of} is too long: at most {limit // MIB} MiB are read."
            raise RecordingError(message, "Record fewer candidates, or shorter sessions.")
        self.entries += 1
        return _BEFORE.pack(len(payload), zlib.crc32(payload) if self._checksums else 0) + payload


def note_last(last: dict[int, Distribution], value: object) -> None:
    """Store a record's distribution by node, so that a step after the node need not repeat it."""
    found = getattr(value, "next", None)
    if type(found) is Distribution:
        last[found.node] = found


def save_as(path: Path | str, entries: Iterable[Entry], program: str, force: bool = True) -> int:
    """Write a recording that only its owner can read; an existing file is replaced when the new one is complete.

    Args:
        path: The file; it is compressed if its name ends in `.zst`.
        entries: All entries of a session, in order.
        program: Name and version of the writing program.
        force: True to replace an existing file, keeping its permissions.

    Returns:
        Bytes of the file.

    Raises:
        RecordingError: The file can't be written; an existing file is unchanged.
    """
    path, compresses = Path(path), Path(path).suffix == ".zst"
    writer = FrameWriter(program, ends=True, checksums=not compresses)
    try:
        with replacing(path, force, PRIVATE) as file:
            with _compressed(file) if compresses else nullcontext(file) as out:
                out.write(MAGIC + writer.header())
                for entry in entries:
                    out.write(writer.entry(entry))
                out.write(writer.end())
            return file.tell()
    except PathError as error:
        raise RecordingError(error.message, error.hint) from error


def unwritable(path: Path, error: OSError) -> RecordingError:
    """Convert an error of writing a file."""
    return RecordingError(*message_and_hint(path, error, "written"))


def _compressed(file: BinaryIO) -> Any:
    zstd = _zstd()
    packing = {zstd.CompressionParameter.compression_level: 9, zstd.CompressionParameter.checksum_flag: 1}
    return zstd.ZstdFile(file, "wb", options=packing)


def _zstd() -> Any:
    """Import Zstandard: Python's own module, or a package before Python 3.14. Only `.zst` files need it."""
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd


# ---- reading ----------------------------------------------------------------------------------


class RecordingReader(Iterator[Entry]):
    """Iterator over the entries of a recording. Closes the file at its end, or as a context manager.

    Args:
        path: The file; its first bytes show whether it is compressed.
        torn_ok: True to skip an incomplete last frame, which a killed program may leave.
        follow: True to follow a file that a program appends to: iteration stops at its end, and a later iteration
            continues from there.
        only: Names of the entries to read; others are skipped without checks. None for all.

    Raises:
        RecordingError: There is no such file, or it is not a recording that this version can read.
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
        """Bytes of an incomplete last frame; known at the end."""
        self.complete = len(MAGIC)
        """Bytes up to the end of the last complete frame, uncompressed."""
        self.frames = self.entries = 0
        """Numbers of frames and entries read so far; header and end are frames, but not entries."""
        self.last: dict[int, Distribution] = {}
        """Last distribution of each node."""
        self._torn_ok, self._follow = torn_ok, follow
        self._only = None if only is None else {"Header", "End", *only}
        self._nodes = KnownNodes()
        self._ends = self._lacks_end = False
        try:
            self._raw = open_regular(self.path)
        except OSError as error:
            raise RecordingError(*message_and_hint(self.path, error)) from error
        self._size = os.fstat(self._raw.fileno()).st_size
        try:
            self._file = self._plain()
            header = self._next_value()
            if not isinstance(header, Header):
                raise self._wrong("is not the header that a recording begins with", ahead=header is None)
            self.header: Header = header
            """The first header, even if the session was continued."""
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
        """Close the file; entries that were read stay valid."""
        self._raw.close()

    @property
    def progress(self) -> float:
        """Fraction of the file that has been read, 0 to 1."""
        if self._raw.closed:
            return 1.0
        return min(1.0, self._raw.tell() / max(1, self._size))

    @property
    def follows(self) -> bool:
        """True if more may follow at the end: the file is not compressed and has no end entry."""
        return self._follow and not (self.compressed or self._ends or self._raw.closed)

    def __next__(self) -> Entry:
        while not self._raw.closed:
            value = self._next_value()
            if isinstance(value, Entry):
                self.entries += 1
                return value
            if value is None:
                if self.follows:
                    self._check_same()
                else:
                    if self._lacks_end:
                        raise self._wrong("is missing: the file is cut short before it", ahead=True)
                    self.close()
                break
        raise StopIteration

    # ---- bytes ------------------------------------------------------------------------------

    def _plain(self) -> Any:
        """Open the file, decompress it if needed, and read its first line."""
        file: Any = self._raw
        try:
            self.compressed = self._raw.peek(4)[:4] == b"\x28\xb5\x2f\xfd"
            if self.compressed:
                zstd = _zstd()
                options = {zstd.DecompressionParameter.window_log_max: WINDOW_LOG}
                file = io.BufferedReader(cast(Any, zstd.ZstdFile(self._raw, options=options)), 2**17)
            begin = file.read(len(MAGIC))
        except Exception as error:
            raise self._unreadable(error) from error
        if begin != MAGIC:
            what = "is empty" if not begin else "is not a recording of this program"
            if re.match(rb"mlx-inspector recording \d", begin):
                what = "was written by another version of this program"
            raise RecordingError(f"{self.path} {what}.", "Give a file that inspector saved.")
        return file

    def _next_value(self) -> Entry | Header | End | None:
        """The next requested entry, header or end; None at the end of the file."""
        while True:
            payload = self._payload()
            if payload is None:
                return None
            try:
                if self._only is not None and _KIND.decode(payload).value.event not in self._only:
                    continue
                return self._value(payload)
            except Misfit as error:
                raise self._wrong(str(error)) from None
            except (SettingsError, MsgspecError, ValueError, RecursionError) as error:
                raise self._wrong(f"can't be read: {_one_line(error)}") from None

    def _payload(self) -> bytes | None:
        """The next frame; None at the end of the file, or at an incomplete frame to skip."""
        try:
            begin: bytes = self._file.read(_BEFORE.size)
            length, crc = _BEFORE.unpack(begin) if len(begin) == _BEFORE.size else (0, 0)
            if length > FRAME_LIMIT:
                what = f"is longer than the {FRAME_LIMIT // MIB} MiB that a frame may have"
                raise self._wrong(what, ahead=True)
            zeros = begin == bytes(_BEFORE.size)  # some file systems leave zeros after a power cut
            payload: bytes = self._file.read(FRAME_LIMIT if zeros else length)
        except RecordingError:
            raise
        except Exception as error:
            raise self._unreadable(error) from error
        if not begin:
            return None
        if zeros and payload.strip(b"\0"):
            raise self._wrong("is empty", ahead=True)
        if zeros or len(begin) < _BEFORE.size or len(payload) < length:
            if self.follows:
                self._raw.seek(-len(begin + payload), os.SEEK_CUR)  # read again once it is complete
            elif self._torn_ok and not self.compressed and not self._ends:
                self.torn = len(begin + payload)
            else:
                raise self._wrong("is cut short", ahead=True)
            return None
        self.frames += 1
        self.complete += len(begin) + length
        if not self.compressed and zlib.crc32(payload) != crc:
            raise self._wrong("was damaged: its checksum differs")
        if self.compressed and self.complete > max(RATIO_FREE, RATIO_LIMIT * self._raw.tell()):
            raise self._wrong(f"is of no session: its bytes expand to more than {RATIO_LIMIT} times as many")
        if self.complete > TOTAL_LIMIT:
            self.close()
            message = f"{self.path} is too long: a recording has at most {TOTAL_LIMIT // MIB} MiB."
            raise RecordingError(message, "Record fewer candidates, or shorter sessions.", self.frames)
        return payload

    def _check_same(self) -> None:
        """Check that this is still the same file, so that appended bytes continue what was read.

        Raises:
            RecordingError: The file was truncated, removed or replaced; the entries read so far stay valid.
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
        raise RecordingError(f"{self.path} {what} and is no longer followed.", "Open it again.", self.frames)

    def _unreadable(self, error: Exception) -> RecordingError:
        """Convert an error that a library raised for a damaged file."""
        if isinstance(error, EOFError):
            return self._wrong("is cut short: the compressed data end in it", ahead=True)
        if isinstance(error, OSError) or type(error).__name__ == "ZstdError":
            why = getattr(error, "strerror", None) or error
            return self._wrong(f"can't be read: {why}", ahead=True)
        raise error

    def _wrong(self, what: str, ahead: bool = False) -> RecordingError:
        number = self.frames + ahead
        self.close()
        return RecordingError(f"Entry {number} of {self.path} {what}.", _MEND, number)

    # ---- values -----------------------------------------------------------------------------

    def _value(self, payload: bytes) -> Entry | Header | End:
        at, value = _decoder().decode(payload)
        match value:
            case Header() if not self._lacks_end:
                self._ends = self._lacks_end = value.ends
                return value
            case Header():
                raise Misfit("is a header before the recording's end")
            case _ if self._ends and not self._lacks_end:
                raise Misfit("stands behind the recording's end")
            case End():
                if value.entries != self.frames - 1:
                    raise Misfit(f"counts {value.entries} entries before it, and there are {self.frames - 1}")
                self._ends, self._lacks_end = True, False
                return value
            case SettingsUsed() | LoadSettingsUsed():
                return Entry(check(value.settings), at)
            case Step() if value.choice is AS_BEFORE and self._only is None:
                if (before := self.last.get(value.parent)) is None:
                    raise Misfit(
                        f"needs the distribution after node {value.parent}, which no entry before it has"
                    )
                force_setattr(value, "choice", before)
        if self._only is None:
            self._nodes.check(value)
            note_last(self.last, value)
        return Entry(value, at)


@contextmanager
def uncollected() -> Iterator[None]:
    """Pause garbage collection while entries are read, since they form no cycles and scanning them doubles the time."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def _one_line(error: Exception) -> str:
    words = " ".join(str(getattr(error, "message", error)).split()).removesuffix(".")
    return words if len(words) <= 200 else words[:199] + "…"
