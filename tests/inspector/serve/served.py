"""A server with a small program, and visitors without a browser."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from html import unescape
from typing import Any

import aiohttp

from inspector.serve.server import Limits, Server

ECHO = """
import os, select, sys, tty, signal
tty.setraw(0)
def told(*_):
    columns, rows = os.get_terminal_size(0)
    os.write(1, f"[{columns}x{rows}]".encode())
signal.signal(signal.SIGWINCH, told)
signal.signal(signal.SIGHUP, lambda *_: (os.write(1, b"[saved]"), sys.exit()))
told()
total = 0
while True:
    while not select.select([0], [], [], 0.02)[0]:  # a signal just before a read would wait for its end
        pass
    data = os.read(0, 65536)
    total += len(data)
    if b"q" in data:
        os.write(1, b"[left]")
        break
    os.write(1, data if total < 1000 else f"[{total}]".encode())
"""
"""Answers what is typed with itself, and once that was long, with how much came so far; `q` ends it.

How a long text is cut into reads is the system's: its last part may be a few bytes."""
SECONDS = 60.0


class Visitor:
    """One open websocket."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self.seen = ""

    async def send(self, *message: object) -> None:
        await self.socket.send_str(json.dumps(message))

    async def until(self, words: str) -> str:
        """Wait until something is drawn; returns all that was."""
        async with asyncio.timeout(SECONDS):
            while not re.search(words, self.seen):
                message = await self.socket.receive()
                assert message.type is aiohttp.WSMsgType.BINARY, (message, self.seen)
                self.seen += message.data.decode(errors="replace")
        return self.seen

    async def end(self) -> tuple[int | None, str]:
        """Wait until it is closed; returns the code and the reason."""
        async with asyncio.timeout(SECONDS):
            while (message := await self.socket.receive()).type in (
                aiohttp.WSMsgType.BINARY,
                aiohttp.WSMsgType.TEXT,
            ):
                if message.type is aiohttp.WSMsgType.BINARY:
                    self.seen += message.data.decode(errors="replace")
        return self.socket.close_code, str(message.extra or "")


class Place:
    """A running server."""

    def __init__(self, server: Server, client: aiohttp.ClientSession) -> None:
        self.server, self.client = server, client
        self.root = f"http://127.0.0.1:{server.port}"

    async def get(self, path: str, **headers: str) -> tuple[int, str]:
        async with self.client.get(self.root + path, headers=headers, allow_redirects=False) as response:
            return response.status, unescape(await response.text())

    async def admit(self, **headers: str) -> dict[str, str]:
        """Use a fresh token; returns the header that a browser then sends."""
        address = f"{self.root}/?token={self.server.admissions.issue()}"
        async with self.client.get(address, headers=headers) as response:
            assert response.status == 200
            return {"Cookie": response.headers["Set-Cookie"].partition(";")[0]}

    async def visit(self, headers: dict[str, str] | None = None, size: str = "width=90&height=30") -> Visitor:
        headers = {"Origin": self.root, **(headers if headers is not None else await self.admit())}
        return Visitor(
            await self.client.ws_connect(f"{self.root}/ws?{size}", headers=headers, max_msg_size=2**26)
        )


@asynccontextmanager
async def serving(script: str = ECHO, **options: Any) -> AsyncIterator[Place]:
    """A server of a small program; whatever is left of it afterwards is a fault."""
    limits = options.pop("limits", Limits())
    server = Server(options.pop("command", (sys.executable, "-c", script)), limits, **options)
    await server.start("127.0.0.1", 0)
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as client:
        try:
            yield Place(server, client)
        finally:
            pids = [session.program.pid for session in server.sessions]
            await server.close()
            assert not any(map(alive, pids))


def alive(pid: int) -> bool:
    """Whether a process is there."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def eventually(what: Callable[[], bool] | Callable[[], Awaitable[bool]]) -> None:
    """Wait until something holds."""
    end = time.monotonic() + SECONDS
    while True:
        held = what()
        if held if isinstance(held, bool) else await held:
            return
        assert time.monotonic() < end, "it never came to hold"
        await asyncio.sleep(0.02)
