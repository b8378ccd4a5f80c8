"""The file to which a running session is appended, so that a crash loses at most the last second.

Since a disk may be slow, a separate thread encodes and writes; the caller of `write` doesn't wait.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue

from engine.errors import RecordingError
from engine.files import name_new, open_regular
from engine.recording.file import MAGIC, Entry, FrameWriter, RecordingReader, unwritable

SYNC_SECONDS = 1.0
"""Maximum seconds until written data are synced to the disk; the operating system receives them at once."""


class RecordingChanged(RecordingError):
    """Another program wrote to a journal's file, or replaced the file."""


class Journal:
    """A growing recording, made by `create` or `resume`. Its file is locked, so that no other program can use it.

    An error of the writing thread is raised once, by the next `write`, `flush` or `close`; then the journal is off and
    discards everything.
    """

    def __init__(self, file: _File, writer: FrameWriter) -> None:
        self.path = file.path
        self.off = False
        """True if everything is discarded."""
        self._file, self._writer = file, writer
        self._queue: SimpleQueue[Entry | threading.Event | None] = SimpleQueue()
        self._failure: RecordingError | None = None
        self._thread = threading.Thread(target=self._work, name="journal", daemon=True)
        self._thread.start()

    @classmethod
    def create(cls, path: Path | str, program: str) -> Journal:
        """Begin a new file.

        Args:
            path: The file, which must not exist; missing directories are created.
            program: Name and version of the writing program.

        Raises:
            RecordingError: The file can't be created.
        """
        path, writer = Path(path), FrameWriter(program)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = _created(path, MAGIC + writer.header())
        except OSError as error:
            raise unwritable(path, error) from error
        return cls._begun(path, descriptor, writer)

    @classmethod
    def resume(cls, reader: RecordingReader, program: str) -> Journal:
        """Continue a file, cutting off an incomplete last frame.

        Args:
            reader: A reader that has read the file to its end.
            program: Name and version of the writing program.

        Raises:
            RecordingError: The file can't be written, has changed since it was read, or another program uses it.
        """
        path, writer = reader.path, FrameWriter(program)
        if reader.compressed:
            raise RecordingError(
                f"{path} is compressed, so the session can't be continued in it.",
                "Save it under a name without .zst.",
            )
        writer.size, writer.last = reader.complete, reader.last
        try:
            descriptor = os.open(path, os.O_RDWR)
        except OSError as error:
            raise unwritable(path, error) from error
        return cls._begun(path, descriptor, writer, reader)

    @classmethod
    def _begun(
        cls, path: Path, descriptor: int, writer: FrameWriter, reader: RecordingReader | None = None
    ) -> Journal:
        try:
            _lock(path, descriptor)
            file = _File(path, descriptor, os.fstat(descriptor).st_size)
            if reader is not None:
                if file.size != reader.complete + reader.torn:
                    raise RecordingError(f"{path} has changed meanwhile: the session isn't appended to it.")
                file.size = reader.complete
                os.ftruncate(descriptor, file.size)
                file.write(writer.header())
            file.sync()
        except BaseException as error:
            os.close(descriptor)
            if isinstance(error, OSError):
                raise unwritable(path, error) from error
            raise
        return cls(file, writer)

    def write(self, entry: Entry) -> None:
        """Queue an entry to append, and return at once; its value must not change any more.

        Raises:
            RecordingError: An earlier write failed. Raised once; then the journal is off.
        """
        self._raise()
        if not self.off:
            self._queue.put(entry)

    def flush(self, timeout: float = 2.0) -> None:
        """Wait until all data are on the disk.

        Args:
            timeout: Maximum seconds to wait.

        Raises:
            RecordingError: See `write`.
        """
        if not self.off and self._thread.is_alive():
            done = threading.Event()
            self._queue.put(done)
            done.wait(timeout)
        self._raise()

    def close(self, timeout: float = 2.0) -> None:
        """Write the queued entries, and close the file.

        Args:
            timeout: Maximum seconds to wait for a disk that doesn't respond.

        Raises:
            RecordingError: See `write`.
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

    # ---- in the journal's thread ------------------------------------------------------------

    def _work(self) -> None:
        try:
            while self._batch():
                pass
        except RecordingError as error:
            self._failure = error
        except OSError as error:
            self._failure = unwritable(self.path, error)
        except Exception as error:  # a bug must not end the thread silently
            message = f"The session is no longer saved to {self.path}: {error!r}."
            self._failure = RecordingError(message, "This is a fault of the program; please report it.")
        self._file.close()
        self._release()

    def _batch(self) -> bool:
        """Write the queued entries, and sync when due; False at the end."""
        waiting, going = self._taken(self._file.wait())
        data = b"".join(self._writer.entry(item) for item in waiting if isinstance(item, Entry))
        if data:
            self._file.write(data)
        events = [item for item in waiting if isinstance(item, threading.Event)]
        if self._file.wait() == 0 or events or not going:
            self._file.sync()
        for event in events:
            event.set()
        return going

    def _taken(self, timeout: float | None) -> tuple[list[Entry | threading.Event], bool]:
        """Take up to a hundred items from the queue; also returns True if more may follow."""
        items: list[Entry | threading.Event] = []
        try:
            item = self._queue.get(timeout=timeout)
            while item is not None:
                items.append(item)
                if len(items) == 100:
                    return items, True
                item = self._queue.get_nowait()
        except Empty:
            return items, True
        return items, False

    def _release(self) -> None:
        """Release all threads that wait in `flush`."""
        while True:
            try:
                item = self._queue.get_nowait()
            except Empty:
                return
            if isinstance(item, threading.Event):
                item.set()


def _created(path: Path, begin: bytes) -> int:
    """Create and open a file, which gets its name when its header is written."""
    aside = path.with_name(f".{os.urandom(8).hex()}.part")
    descriptor = os.open(aside, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(descriptor, begin)
        name_new(aside, path)
    except BaseException:
        os.close(descriptor)
        raise
    finally:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
    return descriptor


class _File:
    """The journal's file, used by its thread."""

    def __init__(self, path: Path, descriptor: int, size: int) -> None:
        self.path, self._descriptor = path, descriptor
        self.size = size
        """Bytes of all complete frames."""
        self._unsynced: float | None = None
        """Time of the oldest write that is not synced yet; None if all are."""

    def wait(self) -> float | None:
        """Seconds until a sync is due; None if there is nothing to sync."""
        if self._unsynced is None:
            return None
        return max(0.0, self._unsynced + SYNC_SECONDS - time.monotonic())

    def write(self, data: bytes) -> None:
        """Append complete frames; if that fails, a partial write is cut off again."""
        self._check()
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
        """Sync written data to the disk, and check that the file still has its name and content."""
        self._check()
        os.fsync(self._descriptor)
        self._unsynced = None
        if os.fstat(self._descriptor).st_nlink == 0:
            raise RecordingError(
                f"{self.path} was removed: the session is no longer saved.", "Save it elsewhere."
            )

    def _check(self) -> None:
        """Check that no other program truncated, wrote to or replaced the file.

        Raises:
            RecordingChanged: Another program changed it.
        """
        own = os.fstat(self._descriptor)
        try:
            named = os.stat(self.path)
        except FileNotFoundError:  # removed (see `sync`) or renamed
            named = own
        if not os.path.samestat(own, named) or own.st_size != self.size:
            raise RecordingChanged(f"Another program changed {self.path}.", "Save the session elsewhere.")

    def close(self) -> None:
        """Close the file and release its lock."""
        os.close(self._descriptor)


def _lock(path: Path, descriptor: int) -> None:
    """Lock the file for this program, if the file system supports locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise RecordingError(
            f"{path} is in use: another inspector is appending to it.",
            "End that one, or resume another session.",
        ) from error
    except OSError:
        pass  # some network file systems have no locks; saving the session is more important


def in_use(path: Path | str) -> bool:
    """True if a program is currently appending to a journal."""
    try:
        with open_regular(Path(path)) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False
