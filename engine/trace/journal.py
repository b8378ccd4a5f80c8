"""A running session, appended to a file as it happens: after a crash at any moment all but the last second is there.

Encoding a step takes about 0.1 ms and a disk may take any time at all, so that a thread of its own does both: whoever
calls `write` waits for neither.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import threading
import time
from pathlib import Path
from queue import Empty, SimpleQueue

from engine.errors import TraceError
from engine.trace.encode import Encoder, kept
from engine.trace.entry import Entry
from engine.trace.file import TraceReader
from engine.trace.save import unwritable
from engine.trace.shapes import Kept

SYNC_SECONDS = 1.0
"""What was written reaches the disk at the latest after so long; the operating system has it at once."""


class Journal:
    """A trace that grows. One program at a time has it: the file is locked.

    Made by `create` and `resume`. What goes wrong later is raised once, by the next `write`, `flush` or `close`; from
    then on the journal is off and takes everything without keeping it.
    """

    def __init__(self, path: Path, descriptor: int, encoder: Encoder, size: int, began: float) -> None:
        self.path = path
        self.off = False
        """Whether it keeps nothing any more."""
        self._file = _File(path, descriptor, size)
        self._encoder = encoder
        self._began = time.monotonic() - began
        self._queue: SimpleQueue[Entry | threading.Event | None] = SimpleQueue()
        self._failure: TraceError | None = None
        self._thread = threading.Thread(target=self._work, name="journal", daemon=True)
        self._thread.start()

    @classmethod
    def create(cls, path: Path | str, program: str) -> Journal:
        """Begin a new file.

        Args:
            path: It must not exist; directories on the way are made.
            program: Name and version of what writes.

        Raises:
            TraceError: It can't be made.
        """
        path, encoder = Path(path), Encoder(program)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = _created(path, encoder.header())
        except OSError as error:
            raise unwritable(path, error) from error
        return cls._begun(path, descriptor, encoder, b"", 0.0)

    @classmethod
    def resume(cls, path: Path | str, program: str) -> tuple[list[Entry], TraceReader, Journal]:
        """Go on with a file, whose incomplete last line, if there is one, is torn off.

        Returns:
            What it held, the reader that read it (`torn`, `header`, `problems`), and the journal.

        Raises:
            TraceError: It can't be read or written, or another program has it.
        """
        path, encoder = Path(path), Encoder(program)
        try:
            descriptor = os.open(path, os.O_RDWR)
        except OSError as error:
            raise unwritable(path, error) from error
        try:
            _lock(path, descriptor)
            reader = TraceReader(path, torn_ok=True)
            entries = list(reader)
            if reader.compressed:
                raise TraceError(f"{path} is compressed: it can't be gone on with.", "Save it without.")
            os.ftruncate(descriptor, reader.complete)
            encoder.size, encoder.lines = reader.complete, reader.line
        except BaseException as error:
            os.close(descriptor)
            if isinstance(error, OSError):
                raise unwritable(path, error) from error
            raise
        began = entries[-1].at if entries else 0.0
        return entries, reader, cls._begun(path, descriptor, encoder, encoder.header(), began)

    @classmethod
    def _begun(cls, path: Path, descriptor: int, encoder: Encoder, begin: bytes, began: float) -> Journal:
        try:
            _lock(path, descriptor)
            file = _File(path, descriptor, os.fstat(descriptor).st_size)
            file.write(begin)
            file.sync()
        except BaseException as error:
            os.close(descriptor)
            if isinstance(error, OSError):
                raise unwritable(path, error) from error
            raise
        return cls(path, descriptor, encoder, file.size, began)

    @property
    def clock(self) -> float:
        """Seconds since the session began; on the day that it is gone on with, since its last entry."""
        return time.monotonic() - self._began

    def write(self, value: Kept, at: float | None = None) -> None:
        """Append what happened; returns at once.

        Args:
            value: A record, or settings that are in force from now on. Only values that were made once and never
                change may be given.
            at: When it happened, in seconds as `clock` has them; None for now.

        Raises:
            TraceError: Something could not be written, now or before. Raised once; then the journal is off.
        """
        self.write_entry(Entry(kept(value), self.clock if at is None else at))

    def write_entry(self, entry: Entry) -> None:
        """Append an entry of another trace as it is; as `write`."""
        self._raise()
        if not self.off:
            self._queue.put(entry)

    def flush(self, timeout: float = 2.0) -> None:
        """Wait until everything is on the disk.

        Args:
            timeout: Seconds to wait at most.

        Raises:
            TraceError: As `write`.
        """
        if not self.off and self._thread.is_alive():
            done = threading.Event()
            self._queue.put(done)
            done.wait(timeout)
        self._raise()

    def close(self, timeout: float = 2.0) -> None:
        """Write what waits, and let go of the file.

        Args:
            timeout: Seconds to wait at most, for a disk that doesn't answer.

        Raises:
            TraceError: As `write`.
        """
        self._queue.put(None)
        self._thread.join(timeout)
        failed, self.off = self.off, True
        if not failed:
            self._raise()

    def _raise(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            self.off = True
            raise failure

    # ---- in the thread ----------------------------------------------------------------------

    def _work(self) -> None:
        try:
            while self._batch():
                pass
        except TraceError as error:
            self._failure = error
        except OSError as error:
            self._failure = unwritable(self.path, error)
        except Exception as error:  # a fault of the program must not end it in silence
            message = f"The session is no longer saved to {self.path}: {error!r}."
            self._failure = TraceError(message, "This is a fault of the program; please report it.")
        self._file.close()
        self._release()

    def _batch(self) -> bool:
        """Write all that waits, and sync when it is time; False at the end."""
        waiting, going = self._taken(self._file.wait())
        data = b"".join(self._encoder.entry(each) for each in waiting if isinstance(each, Entry))
        if data:
            self._file.write(data)
        events = [each for each in waiting if isinstance(each, threading.Event)]
        if self._file.due or events or not going:
            self._file.sync()
        for event in events:
            event.set()
        return going

    def _taken(self, timeout: float | None) -> tuple[list[Entry | threading.Event], bool]:
        """What waits, at most a hundred of it, and whether more may come."""
        taken: list[Entry | threading.Event] = []
        try:
            each = self._queue.get(timeout=timeout)
            while each is not None:
                taken.append(each)
                if len(taken) == 100:
                    return taken, True
                each = self._queue.get_nowait()
        except Empty:
            return taken, True
        return taken, False

    def _release(self) -> None:
        """Let nobody wait for what will not come."""
        while True:
            try:
                each = self._queue.get_nowait()
            except Empty:
                return
            if isinstance(each, threading.Event):
                each.set()


def _created(path: Path, begin: bytes) -> int:
    """A new file that has its first line from the moment on at which it has its name; opened."""
    aside = path.with_name(f".{path.name[:100]}.{secrets.token_hex(4)}.part")
    descriptor = os.open(aside, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(descriptor, begin)
        _named(aside, path)
    except BaseException:
        os.close(descriptor)
        raise
    finally:
        aside.unlink(missing_ok=True)
    return descriptor


def _named(aside: Path, path: Path) -> None:
    """Give a file its name, which nothing else may have."""
    try:
        os.link(aside, path)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP):
            raise
        if path.exists():  # a file system without links: nobody else makes a session's name meanwhile
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from error
        aside.rename(path)


class _File:
    """The journal's file, as its thread has it."""

    def __init__(self, path: Path, descriptor: int, size: int) -> None:
        self._path, self._descriptor = path, descriptor
        self.size = size
        """Bytes of complete lines."""
        self._unsynced: float | None = None
        """Since when something waits to reach the disk."""

    @property
    def due(self) -> bool:
        """Whether it is time for a sync."""
        return self._unsynced is not None and time.monotonic() - self._unsynced >= SYNC_SECONDS

    def wait(self) -> float | None:
        """Seconds until a sync is due, None if nothing waits for one."""
        if self._unsynced is None:
            return None
        return max(0.0, self._unsynced + SYNC_SECONDS - time.monotonic())

    def write(self, data: bytes) -> None:
        """Append complete lines; what can't be written whole is taken back."""
        try:
            os.lseek(self._descriptor, self.size, os.SEEK_SET)
            left = memoryview(data)
            while left:
                left = left[os.write(self._descriptor, left) :]
        except OSError:
            os.ftruncate(self._descriptor, self.size)
            raise
        self.size += len(data)
        if self._unsynced is None:
            self._unsynced = time.monotonic()

    def sync(self) -> None:
        """Bring what was written to the disk, and see that the file still has its name."""
        os.fsync(self._descriptor)
        self._unsynced = None
        if os.fstat(self._descriptor).st_nlink == 0:
            raise TraceError(
                f"{self._path} was removed: the session is no longer saved.", "Save it elsewhere."
            )

    def close(self) -> None:
        """Let go of the file and its lock."""
        os.close(self._descriptor)


def _lock(path: Path, descriptor: int) -> None:
    """Take the file for this program alone, where its file system can do that."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise TraceError(
            f"{path} is in use: another inspector is appending to it.",
            "End that one, or resume another session.",
        ) from error
    except OSError:
        pass  # some network file systems have no locks; the session matters more


def in_use(path: Path | str) -> bool:
    """Whether a program appends to a journal now."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False
