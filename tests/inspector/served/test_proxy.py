"""Bytes pass as they are, both ways, whatever becomes of their copies; what one side does the other sees."""

from __future__ import annotations

import errno
import json
import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from queue import SimpleQueue

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.errors import EngineError
from inspector.served.proxy import bound
from inspector.served.recording import Part, RecordingFiles
from tests.inspector.served.recorded import Recorded, chunked, cut, received, recording, reply, request

PLACES = st.lists(st.integers(0, 10**6), max_size=20)
BYTES = st.binary(min_size=1, max_size=300) | st.sampled_from(
    [request(b'{"a": 1}') * 3,
     b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(b"x" * 70_000, [9, 999]),
     reply(b"data: {}\n\n" * 9, kind="text/event-stream"), b"\r\n" * 500, bytes(200_000)]
)  # fmt: skip


class Scripted:
    """Answers the next connection as it is told, and tells what it was sent."""

    def __init__(self) -> None:
        self.wanted: SimpleQueue[tuple[int, list[bytes]]] = SimpleQueue()
        self.came: SimpleQueue[bytes] = SimpleQueue()

    def __call__(self, client: socket.socket) -> None:
        size, pieces = self.wanted.get()
        self.came.put(received(client, size))
        for piece in pieces:
            client.sendall(piece)


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Scripted, int]]:
    """A server that is told what to answer, and the port of the recorder before it."""
    upstream = Scripted()
    with recording(tmp_path_factory.mktemp("served") / "r.jsonl", upstream) as recorder:
        yield upstream, recorder.port


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(BYTES, BYTES, PLACES, PLACES, st.booleans())
def test_every_byte_passes_however_it_is_cut(
    scripted: tuple[Scripted, int],
    asked: bytes,
    answered: bytes,
    one: list[int],
    other: list[int],
    half: bool,
) -> None:
    upstream, port = scripted
    upstream.wanted.put((len(asked), cut(answered, other)))
    with socket.create_connection(("127.0.0.1", port)) as client:
        for piece in cut(asked, one):
            client.sendall(piece)
        if half:
            client.shutdown(socket.SHUT_WR)
        assert sha256(received(client)).digest() == sha256(answered).digest()
    assert sha256(upstream.came.get()).digest() == sha256(asked).digest()


def test_large_bodies_pass_both_ways_at_once(tmp_path: Path) -> None:
    """Neither side waits until the other is done."""
    data = bytes(range(256)) * 2**16

    def answer(client: socket.socket) -> None:
        sender = threading.Thread(target=client.sendall, args=(data,))
        sender.start()
        came.put(received(client))
        sender.join()

    came: SimpleQueue[bytes] = SimpleQueue()
    with (
        recording(tmp_path / "r.jsonl", answer) as recorder,
        socket.create_connection(("127.0.0.1", recorder.port)) as client,
    ):

        def send() -> None:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send)
        sender.start()
        assert received(client) == data
        sender.join()
        assert came.get() == data


def test_a_client_that_has_asked_and_sends_no_more_is_answered(tmp_path: Path) -> None:
    def answer(client: socket.socket) -> None:
        client.sendall(reply(received(client)[-2:]))  # after its end

    with (
        recording(tmp_path / "r.jsonl", answer) as recorder,
        socket.create_connection(("127.0.0.1", recorder.port)) as client,
    ):
        client.sendall(request(b"{}"))
        client.shutdown(socket.SHUT_WR)
        assert received(client).endswith(b"\r\n\r\n{}")
    (found,) = recorder.exchanges()
    assert found.reply is not None
    assert (found.reply.body, found.reply.cut) == ({}, False)


def test_the_server_hears_that_a_client_hung_up(tmp_path: Path) -> None:
    heard: SimpleQueue[int] = SimpleQueue()
    go_on = threading.Semaphore(3)

    def answer(client: socket.socket) -> None:
        received(client, len(request()))
        client.sendall(reply(b"", kind="text/event-stream"))
        for number in range(1000):
            go_on.acquire()
            try:
                client.sendall(b'data: {"n": %d}\n\n' % number)
            except OSError:
                heard.put(number)
                return

    with recording(tmp_path / "r.jsonl", answer) as recorder:
        client = socket.create_connection(("127.0.0.1", recorder.port))
        client.sendall(request())
        text = b""
        while text.count(b"\n\n") < 3:
            text += client.recv(1000)
        client.close()
        beat = threading.Event()
        while heard.empty():
            go_on.release()
            beat.wait(0.01)
        assert heard.get() <= 8
    (found,) = recorder.exchanges()
    assert found.reply is not None
    assert found.reply.cut
    assert [event for _, event in found.reply.events][:3] == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert [told.cut for told in recorder.told] == [True]


@pytest.mark.parametrize("broken", [False, True])
def test_a_client_sees_how_the_server_ended(broken: bool, tmp_path: Path) -> None:
    """An end is an end, and a broken connection a broken one, after what came before."""

    def answer(client: socket.socket) -> None:
        received(client, 5 if broken else None)  # bytes that were not read: the system breaks the connection
        client.sendall(b"HTTP/1.1 400 No\r\n\r\nwhy")
        seen.wait(30)

    seen = threading.Event()
    with (
        recording(tmp_path / "r.jsonl", answer) as recorder,
        socket.create_connection(("127.0.0.1", recorder.port)) as client,
    ):
        client.sendall(request(b"x" * 50))
        if not broken:
            client.shutdown(socket.SHUT_WR)
        assert received(client, 22) == b"HTTP/1.1 400 No\r\n\r\nwhy"
        seen.set()
        if broken:
            with pytest.raises(ConnectionResetError):
                client.recv(1)
        else:
            assert client.recv(1) == b""
    (found,) = recorder.exchanges()
    assert found.reply is not None
    assert (found.reply.status, found.reply.body, found.reply.cut) == (400, "why", broken)


def test_no_server_is_said_once_and_clients_see_it(tmp_path: Path) -> None:
    with bound(0) as nobody:
        recorder = Recorded(tmp_path / "r.jsonl", nobody.getsockname()[1])
        recorder.start()
        for _ in range(3):
            with (
                socket.create_connection(("127.0.0.1", recorder.port)) as client,
                pytest.raises(OSError, match="reset"),
            ):
                received(client)
        recorder.close()
    (complaint,) = recorder.complaints
    assert complaint.startswith("No server answers at 127.0.0.1:")
    assert recorder.exchanges() == []


def test_a_disk_that_takes_nothing_delays_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What doesn't fit is counted and said; connections after it are recorded again."""
    blocked, original = threading.Event(), RecordingFiles.write
    data = b"x" * 2**20

    def write(self: RecordingFiles, *given: object) -> None:
        blocked.wait(60)
        original(self, *given)  # type: ignore[arg-type]

    def answer(client: socket.socket) -> None:
        received(client, len(request()))
        client.sendall(reply(data, f"Content-Length: {len(data)}"))

    monkeypatch.setattr(RecordingFiles, "write", write)
    with recording(tmp_path / "r.jsonl", answer, queue=3 * 2**20) as recorder:

        def ask() -> None:
            with socket.create_connection(("127.0.0.1", recorder.port)) as client:
                client.sendall(request())
                assert received(client).endswith(data)

        for _ in range(10):
            ask()
        assert recorder.copies.lost > 5 * 2**20
        blocked.set()
        while len(recorder.told) < 2:
            threading.Event().wait(0.01)
        ask()
    found = recorder.exchanges()
    assert found[0].reply is not None
    assert not found[0].reply.cut
    assert found[-1].reply is not None
    assert (found[-1].reply.body, found[-1].reply.cut) == (data.decode(), False)
    (complaint,) = recorder.complaints
    assert complaint.endswith("The recorder could not keep up.")


def test_a_disk_that_is_full_ends_the_recording_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(descriptor: int, data: bytes) -> int:
        if not any(descriptor == part.descriptor for part in parts):
            return original(descriptor, data)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def answer(client: socket.socket) -> None:
        received(client, len(request()))
        client.sendall(reply(b"{}"))

    original, parts = os.write, list[Part]()
    monkeypatch.setattr("os.write", write)
    with recording(tmp_path / "r.jsonl", answer) as recorder:
        parts.append(recorder.recording.begin()[1])
        for _ in range(2):
            with socket.create_connection(("127.0.0.1", recorder.port)) as client:
                client.sendall(request())
                assert received(client).endswith(b"{}")
    (complaint,) = recorder.complaints
    assert "No space left on device. Make room there" in complaint
    assert complaint.endswith("Nothing more is recorded; requests and replies pass as before.")


def test_four_at_once_are_kept_apart(tmp_path: Path) -> None:
    def answer(client: socket.socket) -> None:
        for _ in range(10):  # one connection, ten exchanges
            head = received(client, len(request(b"0000")))
            body = json.dumps({"echo": int(head[-4:])}).encode()
            client.sendall(reply(chunked(body, [3]), "Transfer-Encoding: chunked"))

    def ask(first: int) -> list[bytes]:
        with socket.create_connection(("127.0.0.1", recorder.port)) as client:
            found = []
            for number in range(10):
                client.sendall(request(b"%04d" % (1000 + 10 * first + number)))
                answer = b""
                while not answer.endswith(b"X-Trailer: t\r\n\r\n"):
                    answer += client.recv(1000)
                found.append(answer)
            return found

    with recording(tmp_path / "r.jsonl", answer) as recorder, ThreadPoolExecutor(4) as pool:
        assert len([*pool.map(ask, range(4))]) == 4
    found = recorder.exchanges()
    assert sorted(each.body for each in found) == list(range(1000, 1040))
    assert all(each.reply is not None and each.reply.body == {"echo": each.body} for each in found)
    assert [each.number for each in found] == list(range(1, 41))


def test_a_full_file_is_followed_by_another(tmp_path: Path) -> None:
    """Both lines of an exchange are in one file, also where another one was begun between them."""

    def answer(client: socket.socket) -> None:
        received(client, len(request()))
        slow = waiting.acquire(blocking=False)
        if slow:
            over.wait(60)
        client.sendall(reply(b'{"a": "' + b"x" * 1000 + b'"}'))

    waiting, over = threading.Semaphore(1), threading.Event()
    (tmp_path / "r-3.jsonl").write_text("another's")
    with recording(tmp_path / "r.jsonl", answer, most=2000) as recorder:

        def ask() -> None:
            with socket.create_connection(("127.0.0.1", recorder.port)) as client:
                client.sendall(request())
                received(client)

        first = threading.Thread(target=ask)
        first.start()
        while not recorder.recording.exchanges:
            threading.Event().wait(0.01)
        for _ in range(5):
            ask()
        over.set()
        first.join()
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files[:3] == ["r-2.jsonl", "r-3.jsonl", "r-4.jsonl"]
    assert (tmp_path / "r-3.jsonl").read_text() == "another's"
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.iterdir() if path.name != "r-3.jsonl")
    found = recorder.exchanges()
    assert sorted(each.number for each in found) == [1, 2, 3, 4, 5, 6]
    assert all(each.reply is not None for each in found)


def test_two_recorders_want_one_port(tmp_path: Path) -> None:
    one, other = Recorded(tmp_path / "a.jsonl", 1), Recorded(tmp_path / "b.jsonl", 1)
    one.start()
    with pytest.raises(EngineError, match="is taken: another program listens there"):
        bound(one.port)
    other.writer.start()
    one.close()
    other.close()
