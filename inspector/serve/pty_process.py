"""A program on a pseudo-terminal: written to and read from without waiting, resized, ended with all that it began."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import struct
import termios
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from fcntl import ioctl
from pathlib import Path

_MOST_READ = 2**16
MOST_WAITING = 2**22
"""Bytes of input that wait for a program which doesn't read."""


class PtyProcess:
    """One program, the leader of its own session. If this process dies, the program's terminal is gone, and it ends.

    Args:
        process: That runs.
        leader: Descriptor of the terminal's other end.
    """

    def __init__(self, process: asyncio.subprocess.Process, leader: int) -> None:
        self.pid = process.pid
        self._process, self._leader = process, leader
        self._waiting = bytearray()
        self._gone = asyncio.create_task(process.wait())
        os.set_blocking(leader, False)

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        environment: Mapping[str, str],
        columns: int,
        rows: int,
        folder: Path | None = None,
    ) -> PtyProcess:
        """Start a program.

        Args:
            command: The program and its arguments; no shell reads them.
            environment: Of the process.
            columns: Of its terminal.
            rows: Of its terminal.
            folder: In which it runs; None for this process's.

        Raises:
            OSError: The system gives no further process or terminal.
        """
        leader, follower = pty.openpty()
        try:
            _set_size(leader, columns, rows)
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=follower,
                stdout=follower,
                stderr=follower,
                env=environment,
                cwd=folder,
                start_new_session=True,
            )
        except BaseException:
            os.close(leader)
            raise
        finally:
            os.close(follower)
        return cls(process, leader)

    async def read(self) -> bytes:
        """What the program wrote, once there is something; nothing at its end."""
        while True:
            ended = self._gone.done()
            try:
                return os.read(self._leader, _MOST_READ)
            except BlockingIOError:
                if ended:  # though one that it began may hold the terminal
                    return b""
                await self._readable()
            except OSError:  # nobody has the terminal open any more
                return b""

    async def _readable(self) -> None:
        """Wait until something can be read, or the program has ended."""
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        loop.add_reader(self._leader, ready.set)
        waits = asyncio.create_task(ready.wait())
        try:
            await asyncio.wait({waits, self._gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waits.cancel()
            loop.remove_reader(self._leader)

    def write(self, data: bytes) -> bool:
        """Type something; returns whether there was room for it."""
        if len(self._waiting) + len(data) > MOST_WAITING:
            return False
        waited = bool(self._waiting)
        self._waiting += data
        if not waited:
            self._flush()
        return True

    def _flush(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            del self._waiting[: os.write(self._leader, self._waiting)]
        except BlockingIOError:
            pass
        except OSError:  # it has ended: reading tells
            self._waiting.clear()
        if self._waiting:
            loop.add_writer(self._leader, self._flush)
        else:
            loop.remove_writer(self._leader)

    def resize(self, columns: int, rows: int) -> None:
        """Give its terminal another size. The signal is sent by hand: the terminal controls no session."""
        if not self._gone.done():
            _set_size(self._leader, columns, rows)
            self._signal(signal.SIGWINCH)

    async def end(self, patience: float, show: Callable[[bytes], None] = lambda data: None) -> None:
        """Hang up, and wait for the program to save and leave; one that doesn't is killed with all that it began.

        Args:
            patience: Seconds to wait.
            show: Gets its last words.
        """
        self._signal(signal.SIGHUP)
        try:
            async with asyncio.timeout(patience):
                while data := await self.read():  # or it could not write its last words, and wait for ever
                    show(data)
                await asyncio.shield(self._gone)
        except TimeoutError:
            pass
        finally:
            self._close()
        await self._gone

    def _close(self) -> None:
        """Kill what is left, and let go of the terminal."""
        self._signal(signal.SIGKILL)
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._leader)
        loop.remove_writer(self._leader)
        os.close(self._leader)

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


def _set_size(leader: int, columns: int, rows: int) -> None:
    ioctl(leader, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
