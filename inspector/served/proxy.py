"""The way between clients and a server: bytes pass as they are, both ways, and copies of them go to whoever reads them.

A thread for each connection. Nothing of HTTP is known here. What one side does the other gets: its bytes, that it sends
no more while it still reads, and that it broke the connection.
"""

from __future__ import annotations

import errno
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Literal

from engine.errors import EngineError
from engine.frozen import slotted
from inspector.served.copies import Copies, Copy

HERE = "127.0.0.1"
BLOCK = 2**16
BACKLOG = 128
PATIENCE = 1.0
"""Seconds that open connections have to end by themselves."""
_RESET = struct.pack("ii", 1, 0)
_BROKEN = select.POLLERR | select.POLLHUP | select.POLLNVAL


def bound(port: int) -> socket.socket:
    """A socket that has a port of this machine, and doesn't listen yet: until then clients are refused.

    Args:
        port: 0 for any that is free.

    Raises:
        EngineError: It can't be had.
    """
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((HERE, port))
    except (OSError, OverflowError) as error:
        made.close()
        raise port_taken(port, error) from error
    return made


def port_taken(port: int, error: Exception) -> EngineError:
    """The error of a port that can't be had."""
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return EngineError(
            f"Port {port} is taken: another program listens there.", "Choose another: --listen PORT."
        )
    reason = error.strerror if isinstance(error, OSError) else error
    return EngineError(f"Port {port} can't be opened: {reason}.", "Choose another: --listen PORT.")


@slotted
class OneWay:
    """One direction of a connection."""

    source: socket.socket
    target: socket.socket
    what: Literal["asked", "answered"]
    left: memoryview
    """Bytes that were read, and that the target hasn't taken yet."""
    over: bool = False


class Passage:
    """One connection of a client, and ours to the server.

    Args:
        number: Of the connection.
        client: Its socket.
        server: The socket to the server.
        copies: Get what passes.
    """

    def __init__(self, number: int, client: socket.socket, server: socket.socket, copies: Copies) -> None:
        self._number, self._client, self._server, self._copies = number, client, server, copies
        nothing = memoryview(b"")
        # what the server said before it broke the connection is read first
        self._ways = (
            OneWay(server, client, "answered", nothing),
            OneWay(client, server, "asked", nothing),
        )
        self._broken = False

    def run(self) -> None:
        """Pass everything, until both sides have sent all or one has gone."""
        poller = select.poll()
        try:
            for each in (self._client, self._server):
                each.setblocking(False)
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while not all(way.over for way in self._ways):
                for descriptor, wanted in self._wanted().items():
                    poller.register(descriptor, wanted)
                self._move(dict(poller.poll()))
        except OSError:
            self._broken = True
        self._copy("over")
        for each in (self._client, self._server):
            if self._broken:
                reset(each)
            each.close()

    def end(self) -> None:
        """End it, from another thread."""
        for each in (self._client, self._server):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _wanted(self) -> dict[int, int]:
        """What to wait for, by socket. One that is waited for nothing tells still when it breaks."""
        wanted = {self._client.fileno(): 0, self._server.fileno(): 0}
        for way in self._ways:
            if way.left:
                wanted[way.target.fileno()] |= select.POLLOUT
            elif not way.over:
                wanted[way.source.fileno()] |= select.POLLIN
        return wanted

    def _move(self, ready: dict[int, int]) -> None:
        moved = False
        for way in self._ways:
            if way.left:
                if ready.get(way.target.fileno(), 0):
                    moved = True
                    self._send(way)
            elif not way.over and ready.get(way.source.fileno(), 0):
                moved = True
                self._read(way)
        if not moved and any(event & _BROKEN for event in ready.values()):
            raise ConnectionResetError

    def _read(self, way: OneWay) -> None:
        try:
            data = way.source.recv(BLOCK)
        except BlockingIOError:
            return
        at = time.monotonic()
        if not data:
            way.over = True
            if self._broken:
                return
            if way.what == "answered":
                self._copy(way.what, at)
            with suppress(OSError):  # the target has gone already
                way.target.shutdown(socket.SHUT_WR)
            return
        way.left = memoryview(data)
        if (
            way.what == "asked"
        ):  # before the server has it, so that no copy of a reply is before that of its request
            self._copy(way.what, at, data)
            self._send(way)
        else:
            self._send(way)
            self._copy(way.what, at, data)

    def _send(self, way: OneWay) -> None:
        try:
            way.left = way.left[way.target.send(way.left) :]
        except BlockingIOError:
            pass
        except OSError:  # what the target has sent before is still read
            way.left, way.over, self._broken = memoryview(b""), True, True

    def _copy(self, what: Literal["asked", "answered", "over"], at: float = 0.0, data: bytes = b"") -> None:
        self._copies.put(Copy(self._number, what, at or time.monotonic(), data))


class Proxy:
    """Accepts clients, and connects each with the server.

    Args:
        listener: Bound.
        upstream: Host and port of the server.
        copies: Get what passes.
        complain: Gets a sentence when the server can't be reached, once.
    """

    def __init__(
        self,
        listener: socket.socket,
        upstream: tuple[str, int],
        copies: Copies,
        complain: Callable[[str], None],
    ) -> None:
        self._listener, self._upstream, self._copies, self._complain = listener, upstream, copies, complain
        self._open: dict[int, Passage] = {}
        self._threads: dict[int, threading.Thread] = {}
        self._unreachable = False
        self._closed = False

    def start(self) -> None:
        """Begin to listen.

        Raises:
            EngineError: Another program has begun to listen there.
        """
        try:
            self._listener.listen(BACKLOG)
        except OSError as error:
            raise port_taken(self._listener.getsockname()[1], error) from error
        threading.Thread(target=self._accept, name="accept", daemon=True).start()

    def close(self) -> None:
        """Accept nobody, and end what is open."""
        self._closed = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._join(PATIENCE)
        for passage in [*self._open.values()]:
            passage.end()
        self._join(PATIENCE)

    def _join(self, patience: float) -> None:
        until = time.monotonic() + patience
        for thread in [*self._threads.values()]:
            thread.join(max(0.0, until - time.monotonic()))

    def _accept(self) -> None:
        for number, client in enumerate(self._clients(), 1):
            thread = threading.Thread(target=self._pass, args=(number, client), daemon=True)
            self._threads[number] = thread
            try:
                thread.start()
            except RuntimeError:  # the system gives no more threads
                del self._threads[number]
                reset(client)
                client.close()

    def _clients(self) -> Iterator[socket.socket]:
        while not self._closed:
            try:
                yield self._listener.accept()[0]
            except OSError:
                if not self._closed:
                    time.sleep(0.05)  # no more files may be open: a client waits

    def _pass(self, number: int, client: socket.socket) -> None:
        try:
            server = socket.create_connection(self._upstream)
        except OSError as error:
            reset(client)  # the nearest to being refused
            client.close()
            self._refused(error)
        else:
            self._unreachable = False
            self._open[number] = passage = Passage(number, client, server, self._copies)
            passage.run()
            del self._open[number]
        del self._threads[number]

    def _refused(self, error: OSError) -> None:
        if not self._unreachable:
            self._unreachable = True
            host, port = self._upstream
            self._complain(f"No server answers at {host}:{port} ({error.strerror or error}): clients see their "
                           "connection closed until one does.")  # fmt: skip


def reset(connection: socket.socket) -> None:
    """Have the other end see a broken connection, not one that has ended, once this one is closed."""
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
