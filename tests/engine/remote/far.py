"""An engine behind a socket, and the clients that tests connect to it."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

from engine import protocol
from engine.protocol import Record
from engine.remote.client import Connection, RemoteEngine
from engine.remote.link import Address, AddressLink, Link
from engine.remote.server import EngineServer
from tests.engine.test_thread import Engine
from tests.system import short_directory

TOKEN, PROGRAM = "a token", "1.2.3"


class Host:
    """A server that listens on a socket of files."""

    def __init__(self, directory: Path) -> None:
        self.address = Address(path=str(directory / "engine.sock"))
        self.listener = self.address.listen()
        self.server = EngineServer(TOKEN, PROGRAM)
        self.server.start()
        self.thread = threading.Thread(target=self.server.serve, args=(self.listener,), daemon=True)
        self.thread.start()

    def link(self, token: str = TOKEN) -> AddressLink:
        return AddressLink(self.address, token)

    def close(self) -> None:
        assert self.server.close(10)
        self.thread.join(10)
        self.listener.close()
        self.address.remove()


@contextmanager
def hosted() -> Iterator[Host]:
    """A server, in a directory with a short name: paths of sockets are bounded."""
    directory = short_directory()
    host = Host(directory)
    try:
        yield host
    finally:
        host.close()
        shutil.rmtree(directory)


class Far(Engine):
    """A client, whose records are gathered command by command."""

    def __init__(self, link: Link, joins: bool = False, program: str = PROGRAM) -> None:
        self.queue: SimpleQueue[Record] = SimpleQueue()
        self.stages: SimpleQueue[Connection] = SimpleQueue()
        self.adopted: list[protocol.Command] = []
        self.remote = RemoteEngine(self.queue.put, link, program, self.stages.put, self.adopted.append)
        self.remote.joins = joins
        self.remote.connect()
        self.remote.start()

    def send(self, command: protocol.Command) -> None:
        self.remote.send(command)

    def wait(self, holds: Callable[[Connection], bool]) -> Connection:
        """Wait for a stage of the connection."""
        while not holds(connection := self.stages.get(timeout=60)):
            pass
        return connection

    def close(self) -> None:
        assert self.remote.close(10)


def settled(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    wait = threading.Event()
    for _ in range(600):
        if holds():
            return
        wait.wait(0.05)
    raise AssertionError("it never came to hold")
