"""One visitor: a websocket on one side, a program on a pseudo-terminal on the other, until either ends."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import struct
import subprocess
import termios
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from fcntl import ioctl
from pathlib import Path
from typing import Any

from aiohttp import WSCloseCode, WSMsgType, web

MOST_COLUMNS, MOST_ROWS = 500, 200
RESIZE_SECONDS = 0.05
"""Between two sizes that the program hears of: each has it draw everything."""
END_SECONDS = 5.0
"""A program gets to save its session and leave; the engine takes 2 at most."""
CLOSE_SECONDS = 2.0
"""A browser gets to take its leave."""


class Visit:
    """Carries keys one way and what is drawn the other.

    Args:
        program: Runs.
        socket: Of the visitor's page, open.
        clock: Seconds.
    """

    def __init__(
        self, program: PtyProcess, socket: web.WebSocketResponse, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.program = program
        self._socket, self._clock = socket, clock
        self._heard = clock()
        self._reason = ""
        self._over = asyncio.Event()
        self._size: tuple[int, int] | None = None
        """That the program is to hear of next."""

    @property
    def idle(self) -> float:
        """Seconds since the visitor last did something."""
        return self._clock() - self._heard

    def end(self, reason: str) -> None:
        """Have it end.

        Args:
            reason: What the visitor reads: one sentence, 120 bytes at most.
        """
        self._reason = self._reason or reason
        self._over.set()

    async def run(self) -> None:
        """Go on until the program, the visitor or the server ends it; then nothing is left of it."""
        tasks = [asyncio.create_task(part) for part in (self._show(), self._take(), self._over.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._finishing = asyncio.create_task(self._finish(tasks))
            await asyncio.shield(self._finishing)

    async def _finish(self, tasks: list[asyncio.Task[Any]]) -> None:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        last = bytearray()
        await self.program.end(END_SECONDS, last.extend)
        with suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(CLOSE_SECONDS):
                if not self._socket.closed:
                    await self._socket.send_bytes(bytes(last))
                await self._socket.close(code=WSCloseCode.GOING_AWAY, message=self._reason.encode())
        for error in ended:
            if isinstance(error, Exception):
                raise error

    async def _show(self) -> None:
        """Send what the program draws. While the page doesn't take it, the program waits too: nothing piles up."""
        with suppress(ConnectionError):
            while data := await self.program.read():
                await self._socket.send_bytes(data)
            self._reason = self._reason or "The program has ended."

    async def _take(self) -> None:
        """Take in what the page sends; whatever is no message of its protocol ends the session."""
        async for message in self._socket:
            if message.type is not WSMsgType.TEXT:
                continue
            try:
                kind, *values = json.loads(message.data)
                await self._do(kind, *values)
            except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError):
                self.end("The page sent something that is not a message.")
                return

    async def _do(self, kind: str, value: Any = None) -> None:
        match kind:
            case "stdin":
                self._heard = self._clock()
                if not self.program.write(value.encode("utf-8", "replace")):
                    self.end("More was typed than the program could take.")
            case "resize":
                self._resize(int(value["width"]), int(value["height"]))
            case "ping":
                await self._socket.send_json(["pong", str(value)[:40]])

    def _resize(self, columns: int, rows: int) -> None:
        """Pass a size on, the last of those that come within a moment."""
        waits, self._size = self._size is not None, bounded(columns, rows)
        if not waits:
            asyncio.get_running_loop().call_later(RESIZE_SECONDS, self._pass_size)

    def _pass_size(self) -> None:
        size, self._size = self._size, None
        if size is not None and not self._over.is_set():
            self.program.resize(*size)


def bounded(columns: int, rows: int) -> tuple[int, int]:
    """A terminal's size within bounds."""
    return max(1, min(MOST_COLUMNS, columns)), max(1, min(MOST_ROWS, rows))


# ---- its program on a pseudo-terminal --------------------------------------------------------

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


# ---- the memory of groups of processes: from /proc where there is one, else from ps ----------

_PROC = Path("/proc")
_GROUP, _PAGES = 2, 21
"""Places in /proc/N/stat after the name, which is in brackets and may have anything in it."""


def resident() -> Mapping[int, int]:
    """Resident bytes of each group of processes, by the group's number; 0 for those that there are not."""
    found: Counter[int] = Counter()
    for group, size in _told_by_proc() if (_PROC / "self/stat").exists() else _told_by_ps():
        found[group] += size
    return found


def _told_by_proc() -> Iterator[tuple[int, int]]:
    page = os.sysconf("SC_PAGE_SIZE")
    for name in os.listdir(_PROC):
        if name.isdecimal():
            with suppress(OSError):  # it has ended meanwhile
                fields = (_PROC / name / "stat").read_bytes().rpartition(b")")[2].split()
                yield int(fields[_GROUP]), int(fields[_PAGES]) * page


def _told_by_ps() -> Iterator[tuple[int, int]]:
    listed = subprocess.run(["ps", "-axo", "pgid=,rss="], capture_output=True, text=True, check=False).stdout
    for line in listed.splitlines():
        group, kilobytes = line.split()
        yield int(group), int(kilobytes) * 1024
