"""A recorder in this process, in front of a server that answers from a script."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from inspector.served.copies import Copies, Copy, What
from inspector.served.exchange import Exchange, read_exchanges
from inspector.served.proxy import Proxy, bound
from inspector.served.reader import Reader, Told
from inspector.served.recording import RecordingFiles

Answer = Callable[[socket.socket], None]


class Upstream:
    """A server: each connection is handed to a function, in a thread of its own, and closed after it."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                client = self._listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=self._one, args=(client,), daemon=True).start()

    def _one(self, client: socket.socket) -> None:
        with client:
            self._answer(client)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


class Recorded:
    """A recorder."""

    def __init__(self, path: Path, upstream: int, most: int = 2**30, queue: int = 2**26) -> None:
        self.path = path
        self.told: list[Told] = []
        self.complaints: list[str] = []
        complain = self.complaints.append
        self.recording = RecordingFiles(path, ("test", "http://upstream"), most, complain)
        self.copies = Copies(queue)
        reader = Reader(self.recording, self.told.append, complain)
        self.writer = threading.Thread(target=reader.run, args=(self.copies,))
        self.listener = bound(0)
        self.port: int = self.listener.getsockname()[1]
        self.proxy = Proxy(self.listener, ("127.0.0.1", upstream), self.copies, complain)

    def start(self) -> None:
        self.writer.start()
        self.proxy.start()

    def close(self) -> None:
        self.proxy.close()
        self.copies.close()
        self.writer.join(60)
        self.recording.close()

    def exchanges(self) -> list[Exchange]:
        """What is in its files; call it after `close`."""
        files = sorted(self.path.parent.glob(f"{self.path.stem}*"))
        return [each for file in files for each in read_exchanges(file.read_bytes().splitlines(True))]


@contextmanager
def recording(path: Path, answer: Answer, **options: int) -> Iterator[Recorded]:
    """A recorder in front of a server; both are over behind it."""
    upstream = Upstream(answer)
    made = Recorded(path, upstream.port, **options)
    made.start()
    try:
        yield made
    finally:
        made.close()
        upstream.close()


def read(path: Path, passed: Iterable[tuple[What, bytes]], connection: int = 1) -> Recorded:
    """What a recorder makes of bytes that passed on one connection, a millisecond from one to the next."""
    made = Recorded(path, 1)
    made.writer.start()
    for at, (what, data) in enumerate(passed):
        made.copies.put(Copy(connection, what, at / 1000, data))
    made.close()
    return made


def received(connection: socket.socket, size: int | None = None) -> bytes:
    """All that comes, up to so many bytes or the end."""
    blocks, left = [], size
    while left != 0 and (data := connection.recv(min(left or 2**16, 2**16))):
        blocks.append(data)
        left = None if left is None else left - len(data)
    return b"".join(blocks)


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    """Bytes in pieces, none of them empty."""
    ends = sorted({place % len(data) for place in places} - {0}) if data else []
    return [data[start:end] for start, end in zip([0, *ends], [*ends, len(data)], strict=True)]


def request(
    body: bytes = b"{}", path: str = "/v1/chat/completions", *lines: str, method: str = "POST"
) -> bytes:
    """A request with a length."""
    head = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json", *lines]
    return "\r\n".join([*head, f"Content-Length: {len(body)}", "", ""]).encode() + body


def chunked(data: bytes, places: Sequence[int] = ()) -> bytes:
    """A body in chunks, with an extension and a trailer."""
    pieces = b"".join(b"%x;n=v\r\n%s\r\n" % (len(piece), piece) for piece in cut(data, places) if piece)
    return pieces + b"0\r\nX-Trailer: t\r\n\r\n"


def reply(body: bytes, *lines: str, status: str = "200 OK", kind: str = "application/json") -> bytes:
    """A reply whose length is told by what `lines` say, or by its end."""
    head = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", *lines, "", ""]
    return "\r\n".join(head).encode() + body
