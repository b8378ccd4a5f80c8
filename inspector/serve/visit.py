"""One visitor: a websocket on one side, a program on a pseudo-terminal on the other, until either ends."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from aiohttp import WSCloseCode, WSMsgType, web

from inspector.serve.pty_process import PtyProcess

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
                self.end("The page sent something that is no message.")
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
